"""Cases: one response, its reference, and the score it must get. Read from JSONL, run, compared.

A case names its judge as a stub, so that no network is needed: fixed replies, one that fails, or one that
looks at the prompt it was given.
"""

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from glmv.data.types import Sample
from glmv.rewards import compose
from glmv.rewards.extract import BEGIN
from glmv.rewards.judge import SCALES, blocks
from glmv.rewards.score import score
from glmv.rewards.style import style
from glmv.rewards.types import Judge, JudgeError
from glmv.rewards.verify import verify

SLACK = 1e-5  # expected values are written with six digits
MAX_SECONDS = 2.0
# Kinds of cases whose response is whole, and the verifier of their answer unless `options` name one.
WHOLE = {"format": "math", "sail": "math"}
STUBS = ("top_score_if_candidate_block_equals_reference", "top_score_if_reference_block_changed")


@dataclass(frozen=True, slots=True)
class Case:
    """`answer` is what stands in the box; None if `response` is whole. `expected` bounds the score."""

    id: str
    kind: str
    response: str
    reference: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    answer: str | None = None
    expected: tuple[float, float] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """`problem` is empty if the case passed, or has nothing to compare with."""

    case: Case
    value: float | None
    reason: str
    seconds: float
    judge_calls: int
    problem: str

    @property
    def ok(self) -> bool:
        return not self.problem


def read_cases(path: str | Path) -> list[Case]:
    """The cases of a JSONL file. Raises ValueError, with file and line, for a line that is no case."""
    return list(_read(Path(path)))


def _read(path: Path) -> Iterator[Case]:
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            yield parse_case(row, f"{path.stem}-{number}")
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}:{number}: {error}") from None


def parse_case(row: Any, default_id: str) -> Case:
    """One line: `domain` or `kind`, `response` or `answer`, `reference`, and for a case `expected`.

    A row of a dataset with a `response` is read too: its `reward_model` holds the rest.
    """
    if not isinstance(row, dict):
        raise ValueError(f"a case must be an object, got {type(row).__name__}")
    if isinstance(row.get("reward_model"), dict) and "kind" not in row and "domain" not in row:
        spec = row["reward_model"]
        row = {**row, **spec, "reference": spec.get("ground_truth")}
    kind, response = row.get("domain", row.get("kind")), row.get("response", row.get("answer"))
    if not isinstance(kind, str) or not isinstance(response, str) or "reference" not in row:
        raise ValueError("a case needs the texts `kind` (or `domain`) and `response`, and a `reference`")
    options = row.get("options") or {}
    if not isinstance(options, dict):
        raise ValueError(f"`options` must be an object, got {options!r}")
    expand = _expander(options)
    answer = row.get("answer")
    return Case(
        id=str(row.get("id", default_id)),
        kind=kind,
        response=expand(response),
        reference=expand(row["reference"]),
        options=options,
        answer=None if answer is None else expand(str(answer)),
        expected=_bounds(row.get("expected")),
        why=str(row.get("why", "")),
    )


def _expander(options: Mapping[str, Any]) -> Any:
    repeat = options.get("repeat")
    if repeat is None:
        return lambda value: value
    placeholder, text = repeat["placeholder"], repeat["unit"] * repeat["times"]
    return lambda value: value.replace(placeholder, text) if isinstance(value, str) else value


def _bounds(expected: Any) -> tuple[float, float] | None:
    if expected is None:
        return None
    if isinstance(expected, dict):
        return float(expected["min"]), float(expected["max"])
    return float(expected), float(expected)


class StubJudge:
    """A judge that does what the options of a case say, and counts its calls."""

    def __init__(self, options: Mapping[str, Any], reference: object) -> None:
        self.options, self.reference, self.calls = options, str(reference), 0
        low, high, _ = SCALES[options.get("judge_scale", "binary")]
        self.low, self.high = f"{low:g}", f"{high:g}"

    def __call__(self, prompt: str) -> str | Sequence[str]:
        self.calls += 1
        if self.options.get("judge_error"):
            raise JudgeError(str(self.options["judge_error"]))
        if "judge_reply_repeat" in self.options:
            repeat = self.options["judge_reply_repeat"]
            return str(repeat["unit"]) * int(repeat["times"])
        stub = self.options.get("judge_stub")
        if stub is None:
            reply: str | Sequence[str] = self.options["judge_reply"]
            return reply
        return self.high if self._fooled(stub, prompt) else self.low

    def _fooled(self, stub: str, prompt: str) -> bool:
        found = blocks(prompt)
        if stub not in STUBS or found is None:
            raise ValueError(f"judge_stub {stub!r} is not known, or the prompt has no candidate block")
        if stub == STUBS[0]:
            return found.candidate.strip() == self.reference.strip()
        return found.reference.strip() != self.reference.strip()


def judge_of(case: Case) -> StubJudge | None:
    """The judge that a case asks for; None if it has none."""
    names = ("judge_error", "judge_reply_repeat", "judge_stub", "judge_reply")
    wanted = any(case.options.get(name) is not None for name in names)
    return StubJudge(case.options, case.reference) if wanted else None


def run_case(case: Case) -> CaseResult:
    """Score one case in this process and compare with what is expected."""
    judge = judge_of(case)
    start = time.perf_counter()
    value, reason = _evaluate(case, judge)
    seconds = time.perf_counter() - start
    calls = judge.calls if judge else 0
    return CaseResult(case, value, reason, seconds, calls, _problem(case, value, seconds, calls))


def _evaluate(case: Case, judge: Judge | None) -> tuple[float | None, str]:
    """Value and reason. A whole response goes through `score`, an answer through `verify`."""
    options = case.options
    if case.kind == "overlong":
        return _overlong(options), "ok"
    if case.kind == "style":
        manner = style(case.response)
        return manner.value, manner.reason
    if case.kind in WHOLE or (case.answer is None and BEGIN in case.response):
        reward = score(case.response, _sample(case), judge)
        if options.get("measure") == "format_only":
            return reward.parts["format"].value, reward.parts["format"].reason
        return None if math.isnan(reward.total) else reward.total, reward.reason
    answer = case.response if case.answer is None else case.answer
    verdict = verify(options.get("verifier", case.kind), answer, case.reference, options, judge)
    return verdict.value, verdict.reason


def _sample(case: Case) -> Sample:
    options = case.options
    kind = options.get("verifier", options.get("reward_type", WHOLE.get(case.kind, case.kind)))
    spec = {"kind": kind, "ground_truth": case.reference, "options": options}
    if case.kind in WHOLE:
        spec["scheme"] = "sail" if case.kind == "sail" else options.get("scheme", "glm")
    return Sample(case.id, case.kind, (), reward_model=spec)


def _overlong(options: Mapping[str, Any]) -> float:
    """Vero's total from its given parts and a length in tokens."""
    penalty = compose.overlong(
        options["length_tokens"], options["max_len"], options["buffer"], options["lambda"]
    )
    return compose.vero_total(options["r_acc"], options["r_fmt"], penalty, options["alpha"])


def _problem(case: Case, value: float | None, seconds: float, calls: int) -> str:
    canary = case.options.get("canary")
    if canary and Path(canary).exists():
        return "canary"
    if seconds > float(case.options.get("max_seconds", MAX_SECONDS)):
        return "slow"
    if case.options.get("expect_judge_calls", calls) != calls:
        return "judge calls"
    if case.expected is None:
        return ""
    low, high = case.expected
    got = value or 0.0
    if got > high + SLACK:
        return "false accept"
    return "false reject" if got < low - SLACK else ""
