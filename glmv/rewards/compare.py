"""Our verdicts beside those of Math-Verify (huggingface/Math-Verify, an optional package) on math answers."""

import importlib.util
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glmv.rewards.case_report import KILL_SECONDS, run_cases, table
from glmv.rewards.cases import SLACK, Case, CaseResult
from glmv.rewards.pool import Pool, TaskError

LIMIT_SECONDS = 5.0  # of each of its two steps; it stops itself by a signal
NAMES = ("math-verify",)


@dataclass(frozen=True, slots=True)
class Pair:
    """One case with our result, and Math-Verify's score (0 or 1; None if it was killed)."""

    ours: CaseResult
    theirs: float | None

    @property
    def their_problem(self) -> str:
        if self.theirs is None:
            return "killed"
        low, high = self.ours.case.expected or (0.0, 1.0)
        if self.theirs > high + SLACK:
            return "false accept"
        return "false reject" if self.theirs < low - SLACK else ""


def math_verify(answer: str, reference: str) -> float:
    """Its score, called as RL frameworks call it: both in a box, any reading of the answer may match."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

    latex = LatexExtractionConfig(boxed_match_priority=0)
    limit = int(LIMIT_SECONDS)
    gold = parse(f"\\boxed{{{reference}}}", [latex], parsing_timeout=limit)
    found = parse(f"\\boxed{{{answer}}}", [ExprExtractionConfig(), latex], parsing_timeout=limit)
    pairs = ((g, f) for g in gold for f in found)
    return float(any(verify(g, f, timeout_seconds=limit) for g, f in pairs))


def comparable(case: Case) -> bool:
    """A mathematical answer with an expected score."""
    mathematical = case.options.get("verifier", case.kind) == "math" and case.kind != "format"
    return mathematical and case.answer is not None and case.expected is not None


def compare(cases: Sequence[Case]) -> list[Pair]:
    """Both on the cases that are comparable. Raises ValueError if there are none, or no math-verify."""
    if importlib.util.find_spec("math_verify") is None:
        raise ValueError("the comparison needs one more package: pip install math-verify")
    chosen = [case for case in cases if comparable(case)]
    if not chosen:
        raise ValueError("the file holds no math case with an `answer` and an expected score")
    with Pool(1, seconds=2 * LIMIT_SECONDS + KILL_SECONDS) as pool:
        tasks = [(case.answer, str(case.reference)) for case in chosen]
        theirs = pool.map(math_verify, tasks)
    return [
        Pair(ours, None if isinstance(value, TaskError) else value)
        for ours, value in zip(run_cases(chosen), theirs, strict=True)
    ]


def as_json(pairs: Sequence[Pair]) -> dict[str, Any]:
    kinds = dict.fromkeys(pair.ours.case.kind for pair in pairs)
    return {
        "kinds": {kind: _figures([p for p in pairs if p.ours.case.kind == kind]) for kind in kinds},
        "total": _figures(pairs),
        "differ": [
            {"id": pair.ours.case.id, "glmv": pair.ours.value, "math-verify": pair.theirs}
            for pair in _differing(pairs)
        ],
    }


def _differing(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if pair.ours.problem != pair.their_problem]


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    return {
        "cases": len(pairs),
        "glmv": _counts([pair.ours.problem for pair in pairs]),
        "math-verify": _counts([pair.their_problem for pair in pairs]),
    }


def _counts(problems: Sequence[str]) -> dict[str, int]:
    counts = Counter(problems)
    accepts, rejects = counts["false accept"], counts["false reject"]
    return {
        "right": counts[""],
        "false_accepts": accepts,
        "false_rejects": rejects,
        "other": len(problems) - counts[""] - accepts - rejects,
    }


def as_text(pairs: Sequence[Pair]) -> str:
    found = as_json(pairs)
    header = ("kind", "cases", "verifier", "right", "false acc.", "false rej.", "other")
    rows = [header]
    for kind, figures in [*found["kinds"].items(), ("all", found["total"])]:
        for name in ("glmv", *NAMES):
            rows.append((kind, str(figures["cases"]), name, *map(str, figures[name].values())))
    differ = [("case", "glmv", *NAMES, "answer", "reference")] + [
        (
            pair.ours.case.id,
            pair.ours.problem or "right",
            pair.their_problem or "right",
            ascii(pair.ours.case.answer)[:40],
            ascii(pair.ours.case.reference)[:40],
        )
        for pair in _differing(pairs)
    ]
    return table(rows) + ("\n\nwhere they differ:\n" + table(differ) if len(differ) > 1 else "")
