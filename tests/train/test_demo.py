"""The main job at a size for tests: every stage, the report, and going on after a stop."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from glmv.train import demo as demo_module
from glmv.train import rl as rl_module
from glmv.train.config import EvalConfig, RlConfig, SamplingConfig, SftConfig
from glmv.train.demo import AFTER_RL, AFTER_SFT, CONTROL, DemoConfig, demo
from glmv.train.run import Interrupted

SAMPLING = SamplingConfig(think_tokens=3, answer_tokens=3)


def small(out: Path) -> DemoConfig:
    return DemoConfig(
        out=str(out),
        threads=1,
        sft_rows=36,
        rl_prompts=40,
        heldout=40,
        bench=False,
        sft=SftConfig(data="", out="", steps=2, batch_size=4),
        rl=RlConfig(data="", out="", model="", steps=1, prompts=7, group_size=2, sampling=SAMPLING),
        eval=EvalConfig(group_size=2, sampling=SAMPLING),
    )


def figures(out: Path) -> dict[str, object]:
    record = json.loads((out / "eval.json").read_text())
    return {row["name"]: row for row in record["rows"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "demo"
    demo(small(out))
    return out


def test_the_demo_ends_with_three_checkpoints_and_a_report(finished: Path) -> None:
    assert set(figures(finished)) == {AFTER_SFT, CONTROL, AFTER_RL}
    report = (finished / "report.html").read_text()
    assert "after SFT" in report
    steps = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [(s["phase"], s["step"]) for s in steps] == [
        *(("sft", 1), ("sft", 2)),
        ("rl", 1),
        *(("control", 3), ("control", 4)),
    ]


def test_a_stopped_demo_goes_on_and_ends_with_the_same_table(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "demo"

    def stop(*_: object) -> None:
        raise Interrupted("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(rl_module, "train", stop)
        with pytest.raises(Interrupted):
            demo(small(out))
    assert set(figures(out)) == {AFTER_SFT}
    with monkeypatch.context() as patch:
        patch.setattr(demo_module.sft, "sft", stop)  # the cold start is done: it must not run again
        demo(small(out))
    assert figures(out) == figures(finished)


def test_another_configuration_does_not_mix_with_a_stopped_demo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(tmp_path / "demo")

    def stop(*_: object) -> None:
        raise Interrupted("stopped")

    monkeypatch.setattr(demo_module.sft, "sft", stop)
    with pytest.raises(Interrupted):
        demo(config)
    with pytest.raises(ValueError, match="seed: 0 there, 5 asked"):
        demo(replace(config, seed=5))


def test_a_finished_demo_is_kept_and_a_new_one_starts_beside_it(finished: Path) -> None:
    before = (finished / "report.html").stat().st_mtime_ns
    again = demo(small(finished))
    assert again == finished.with_name("demo-2") / "report.html"
    assert (finished / "report.html").stat().st_mtime_ns == before
    assert figures(again.parent) == figures(finished)
