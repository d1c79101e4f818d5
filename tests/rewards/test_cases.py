"""Every case of cases.jsonl: one JSON object a line, with answer or response, reference, expected score."""

import statistics
from collections import Counter
from pathlib import Path

import pytest

from glmv.rewards.cases import Case, read_cases, run_case

CASES = read_cases(Path(__file__).parent / "cases.jsonl")
MAX_SECONDS = 2.0
MAX_MEDIAN_SECONDS = 0.005


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_case(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a canary would appear
    result = run_case(case)
    assert not list(tmp_path.iterdir()), "the answer was run as code"
    assert result.problem == "", (result.value, result.reason, case.why)
    assert result.seconds < MAX_SECONDS


def test_median_time() -> None:
    assert statistics.median(run_case(case).seconds for case in CASES) < MAX_MEDIAN_SECONDS


def test_the_file_holds_every_domain() -> None:
    """A case that is lost, or that has nothing to compare with, would pass unseen."""
    counts = Counter(case.kind for case in CASES)
    assert counts.total() == 315
    assert counts["math"] == 97
    assert set(counts) == {
        "math", "ocr", "vqa", "grounding", "click", "chart", "video", "security", "format", "mcq", "list",
        "ordering", "ifollow", "physics", "gui", "webaction", "sail", "style", "overlong",
    }  # fmt: skip
    assert all(case.expected is not None for case in CASES)
