"""`glmv verify`: case files, their stubs, the table, and the exit code."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from glmv.cli import main
from glmv.rewards.case_report import as_text, run_cases
from glmv.rewards.cases import Case, parse_case, read_cases, run_case

GOOD = {"id": "g", "domain": "math", "response": "7.0", "answer": "7.0", "reference": "7", "expected": 1}


def write(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def case(**changes: Any) -> Case:
    return parse_case({**GOOD, **changes}, "id")


def judged(answer: str, **options: Any) -> Case:
    return case(domain="vqa", answer=answer, reference="blue", options=options)


def test_a_file_that_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = (
        write(tmp_path / "c.jsonl", GOOD, {**GOOD, "id": "h", "answer": "8", "expected": 0}),
        tmp_path / "o",
    )
    assert main(["verify", "--cases", path, "--json", "-o", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["passed"] == found["kinds"]["math"]["cases"] == 2
    assert found["total"]["reasons"] == {"ok": 1, "wrong": 1}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(line["id"], line["value"], line["ok"]) for line in lines] == [("g", 1.0, True), ("h", 0.0, True)]


def test_a_file_with_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [GOOD, {**GOOD, "id": "accept", "expected": 0}, {**GOOD, "id": "reject", "answer": "8"}]
    assert main(["verify", "--cases", write(tmp_path / "c.jsonl", *rows)]) == 1
    text = capsys.readouterr().out
    assert [line.split()[:5] for line in text.splitlines() if line.startswith("math")] == [
        ["math", "3", "33.3", "%", "1"]
    ]
    assert "accept  false accept  1 (ok), expected 0" in text
    assert "reject  false reject  0 (wrong), expected 1" in text


def test_responses_without_expected_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxed = "<think>I add.</think><answer><|begin_of_box|>7<|end_of_box|></answer>"
    rows = [{"response": text, "reference": "7", "kind": "math"} for text in (boxed, "7", "8")]
    assert main(["verify", "--cases", write(tmp_path / "r.jsonl", *rows), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["value"] for row in found["results"]] == [1.0, 1.0, 0.0]
    assert found["total"]["mean_score"] == pytest.approx(2 / 3)
    assert found["results"][0]["id"] == "r-1"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("{", "c.jsonl:1: "),
        ('{"kind": "math", "response": "7"}', "a `reference`"),
        ("\n[1]", "c.jsonl:2: a case must be an object"),
        ('{"kind": "math", "response": "7", "reference": "7", "options": 3}', "`options` must be an object"),
        ("", "holds no case"),
    ],
)
def test_a_file_that_is_none(
    lines: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.jsonl").write_text(lines)
    assert main(["verify", "--cases", str(tmp_path / "c.jsonl")]) == 2
    assert message in capsys.readouterr().err


def test_the_responses_of_a_dataset_are_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Supervised rows must earn the full reward of their own verifier."""
    assert main(["data", "make", "--out", str(tmp_path), "--n", "42"]) == 0
    capsys.readouterr()
    assert main(["verify", "--cases", str(tmp_path / "train.jsonl"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["total"]["cases"] == 42
    assert found["total"]["mean_score"] == 1.0


def test_nothing_to_do_is_an_error_of_use(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["verify"], ["verify", "--audit", "--compare", "math-verify"]):
        with pytest.raises(SystemExit):
            main(argv)
    assert "--cases" in capsys.readouterr().err


def test_repeats_are_expanded() -> None:
    options = {"repeat": {"placeholder": "@", "unit": "ab", "times": 3}}
    found = case(domain="ocr", answer="@", response="@", reference="@", options=options)
    assert (found.answer, found.reference) == ("ababab", "ababab")
    assert run_case(found).ok


@pytest.mark.parametrize(
    ("options", "value", "calls"),
    [
        ({"judge_reply": "1.0"}, 1.0, 1),
        ({"judge_reply": ["1.0", "0.0", "1.0"]}, 1.0, 1),
        ({"judge_reply": None}, 0.0, 0),
        ({"judge_reply_repeat": {"unit": "thinking ", "times": 5000}}, 0.0, 1),
        ({"judge_error": "no route"}, None, 1),
        ({"judge_stub": "top_score_if_candidate_block_equals_reference"}, 0.0, 1),
        ({"judge_stub": "top_score_if_reference_block_changed"}, 0.0, 1),
        ({"judge_scale": "vero_1_10", "judge_stub": "top_score_if_reference_block_changed"}, 0.0, 1),
    ],
)
def test_judge_stubs(options: dict[str, Any], value: float | None, calls: int) -> None:
    result = run_case(judged("azure {label}", **options))
    assert (result.value, result.judge_calls) == (value, calls)


def test_the_number_of_judge_calls_counts() -> None:
    options = {"judge_reply": "1", "expect_judge_calls": 0}
    assert run_case(judged("azure", **options)).problem == "judge calls"
    assert run_case(judged(":", **options)).problem == "false reject"


def test_a_canary_fails_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = case(options={"canary": "glmv_canary"})
    assert run_case(found).ok
    (tmp_path / "glmv_canary").touch()
    assert run_case(found).problem == "canary"


def test_a_slow_case_fails() -> None:
    assert run_case(case(options={"max_seconds": 0.0})).problem == "slow"


class Endless(str):
    """Stands for an answer that takes for ever."""

    def strip(self, chars: str | None = None) -> str:
        time.sleep(3600)
        return ""


def test_a_case_without_end_is_killed_and_the_others_are_not() -> None:
    hung = Case("hung", "math", Endless(), "7", answer=Endless(), expected=(0, 0))
    results = run_cases([case(), hung, case()], seconds=0.5)
    assert [result.ok for result in results] == [True, False, True]
    assert results[1].problem.startswith("killed")


def test_every_kind_has_a_line() -> None:
    results = run_cases([case(), judged("blue")])
    assert [line.split()[0] for line in as_text(results).splitlines()[:4]] == ["kind", "math", "vqa", "all"]


def test_the_case_file_of_the_tests_can_be_read() -> None:
    cases = read_cases(Path(__file__).parent / "cases.jsonl")
    assert all(found.expected for found in cases)
    assert sum("canary" in found.options for found in cases) > 5
