"""Every case of cases.jsonl: one JSON object a line, with answer or response, reference, expected score."""

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glmv.data.types import Sample
from glmv.rewards import JudgeError, Score, score, verify
from tests.numeric import REWARDS_CASE_ABS

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]
# Right answers that need algebra with symbols, which is not there yet. They may only be refused as such.
NEEDS_ALGEBRA = {
    "math-082", "math-089", "math-090", "math-091", "math-096", "math-106", "math-127", "math-139",
}  # fmt: skip
MAX_SECONDS = 2.0
MAX_MEDIAN_SECONDS = 0.005


def judge_of(options: dict[str, Any]) -> Callable[[str], Any] | None:
    """The stub that a case asks for: fixed replies, no judge, or one that fails."""
    if options.get("judge_error"):

        def unreachable(prompt: str) -> str:
            raise JudgeError("no route")

        return unreachable
    reply = options.get("judge_reply")
    return None if reply is None else lambda prompt: reply


def expand(value: Any, options: dict[str, Any]) -> Any:
    repeat = options.get("repeat")
    if repeat is None or not isinstance(value, str):
        return value
    return value.replace(repeat["placeholder"], repeat["unit"] * repeat["times"])


def run(case: dict[str, Any]) -> tuple[float | None, str]:
    """Value and reason of one case."""
    options = case["options"]
    reference = expand(case["reference"], options)
    if case["domain"] == "format":
        spec = {"kind": options["verifier"], "ground_truth": reference, "options": options}
        reward = score(case["response"], Sample("id", "source", (), reward_model=spec), judge_of(options))
        return reward.total, reward.reason
    kind = options.get("verifier", case["domain"])
    verdict = verify(kind, expand(case["answer"], options), reference, options, judge_of(options))
    assert isinstance(verdict, Score)
    return verdict.value, verdict.reason


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_case(case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a canary would appear
    start = time.perf_counter()
    value, reason = run(case)
    assert time.perf_counter() - start < MAX_SECONDS
    assert not list(tmp_path.iterdir()), "the answer was run as code"
    if case["id"] in NEEDS_ALGEBRA:
        assert (value, reason) == (0.0, "unsupported")
        return
    expected = case["expected"]
    bounds = expected if isinstance(expected, dict) else {"min": expected, "max": expected}
    assert bounds["min"] - REWARDS_CASE_ABS <= (value or 0.0) <= bounds["max"] + REWARDS_CASE_ABS, reason


def test_median_time() -> None:
    seconds = []
    for case in CASES:
        start = time.perf_counter()
        run(case)
        seconds.append(time.perf_counter() - start)
    assert statistics.median(seconds) < MAX_MEDIAN_SECONDS


def test_the_file_holds_every_domain() -> None:
    kinds = {case["domain"] for case in CASES}
    assert kinds == {"math", "ocr", "vqa", "grounding", "click", "chart", "video", "security", "format"}
    assert {case["id"] for case in CASES} >= NEEDS_ALGEBRA
