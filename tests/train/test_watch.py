"""The watch over the verifiers: strict scores by hand, held-out checks, a hacked verifier is named."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from glmv.data.process import Processor
from glmv.data.types import Sample
from glmv.model import Glm4v
from glmv.rewards.monitor import warnings
from glmv.train import watch as watch_module
from glmv.train.config import RlConfig, SamplingConfig
from glmv.train.report import write_report
from glmv.train.score import Scored
from glmv.train.watch import HeldOut, records, strict

BOX = "<think>x</think><answer><|begin_of_box|>{}<|end_of_box|></answer>"


def answered(text: str) -> Scored:
    return Scored(completion=None, text=text, reward=1.0, reason="ok", format_ok=True, thinking=True)  # type: ignore[arg-type]


def sample(kind: str, truth: Any, options: dict[str, Any] | None = None) -> Sample:
    spec = {"kind": kind, "ground_truth": truth, "options": options or {}}
    return Sample(id="s", data_source="test", prompt=(), reward_model=spec)


@pytest.mark.parametrize(
    ("kind", "truth", "answer", "want"),
    [
        ("math", "7", "7", 1.0),
        ("math", "7", "7.0", 0.0),  # right for the verifier; the strict score takes the text
        ("ocr", "407", "407", 1.0),
        ("ocr", "407", "417", 2 / 3),
        ("ocr", "407", "07", 0.0),  # shifted by one: edit similarity 2/3
        ("vqa", ["red", "crimson"], "crimson", 1.0),
        ("click", [400, 400, 600, 600], "[500, 500]", 1.0),
        ("click", [400, 400, 600, 600], "[405, 500]", 0.0),  # inside, at the edge
        ("grounding", [[0, 0, 100, 100]], "[[0, 0, 100, 100]]", 1.0),
        ("grounding", [[0, 0, 100, 100]], "[[0, 0, 100, 60]]", 0.0),  # IoU 0.6
    ],
)
def test_strict_scores_by_hand(kind: str, truth: Any, answer: str, want: float) -> None:
    assert strict(answered(BOX.format(answer)), sample(kind, truth)) == pytest.approx(want)


def test_an_answer_without_a_box_is_strictly_nothing() -> None:
    assert strict(answered("<think>x</think><answer>7</answer>"), sample("math", "7")) == 0.0


def lines(reward: Sequence[float], strict_scores: Sequence[float]) -> list[dict[str, Any]]:
    """A run whose rollouts are all right and whose held-out answers score as given."""
    return [
        {"step": n, "reward/ocr": 1.0, "reasons/ocr": {"ok": 3, "wrong": 1}, "response_length/ocr": 10.0}
        | {"markers/ocr": 2.0, "checked/ocr": r, "strict/ocr": s}
        for n, (r, s) in enumerate(zip(reward, strict_scores, strict=True))
    ]


def test_a_verifier_that_pays_for_wrong_answers_is_named() -> None:
    hacked = lines([0.3] * 10 + [0.9] * 10, [0.3] * 20)
    found = warnings(records(hacked, held_out=True))
    assert any("ocr, step 19: the reward rose by 0.60 and the strict check by 0.00" in text for text in found)


def test_overfitting_is_no_hacked_verifier() -> None:
    # rollouts are all right, held-out answers are not, for the verifier and the strict score alike
    assert warnings(records(lines([0.3] * 20, [0.25] * 20), held_out=True)) == []


def test_without_a_check_the_rollouts_speak() -> None:
    line = {"step": 3, "reward/ocr": 0.5, "reasons/ocr": {"ok": 1, "wrong": 3}}
    (record,) = records([line], held_out=False)
    assert (record.step, record.domain, record.reward) == (3, "ocr", 0.5)
    assert record.reasons == {"ok": 0.25, "wrong": 0.75}


def config(data_dir: Path) -> RlConfig:
    return RlConfig(
        data="d",
        out="o",
        model="m",
        check_data=str(data_dir / "train.jsonl"),
        check_prompts=20,
        sampling=SamplingConfig(think_tokens=3, answer_tokens=3),
    )


def test_a_check_takes_the_domains_in_turn_and_repeats(tiny: tuple[Glm4v, Processor], data_dir: Path) -> None:
    held_out = HeldOut.read(config(data_dir))
    assert held_out is not None
    assert len(held_out.samples) == 20
    counts = Counter(s.domain for s in held_out.samples)
    assert len(counts) == 7
    assert set(counts.values()) == {2, 3}
    found = held_out.measure(*tiny, config(data_dir), step=5)
    assert found == held_out.measure(*tiny, config(data_dir), step=5)
    assert {key.partition("/")[0] for key in found} == {"checked", "strict"}
    assert len(found) == 14


def test_no_check_without_held_out_rows(data_dir: Path) -> None:
    assert HeldOut.read(replace(config(data_dir), check_data=None)) is None


def test_the_strict_score_sees_the_same_answers_as_the_verifier(
    tiny: tuple[Glm4v, Processor], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held_out = HeldOut.read(config(data_dir))
    assert held_out is not None
    seen: list[Scored] = []

    def hacked(*args: Any) -> list[Scored]:
        from glmv.train.score import score_group

        scored = [replace(s, reward=1.0) for s in score_group(*args)]
        seen.extend(scored)
        return scored

    monkeypatch.setattr(watch_module, "score_group", hacked)
    found = held_out.measure(*tiny, config(data_dir), step=5)
    assert {found[key] for key in found if key.startswith("checked/")} == {1.0}
    assert {found[key] for key in found if key.startswith("strict/")} == {0.0}  # a random model
    assert len(seen) == 20


def test_the_report_shows_the_signs(tmp_path: Path) -> None:
    text = "ocr, step {}: the reward rose by 0.{} and the strict check by 0.00: the verifier may be hacked"
    steps = [{"phase": "rl", "step": n, "warnings": [text.format(n, n)] if n > 1 else []} for n in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(s) + "\n" for s in steps))
    page = write_report(tmp_path).read_text()
    assert text.format(3, 3) + " (2 steps)" in page
    assert text.format(2, 2) not in page
    (tmp_path / "metrics.jsonl").write_text(json.dumps(steps[0]) + "\n")
    assert "No sign of a hacked verifier." in write_report(tmp_path).read_text()
