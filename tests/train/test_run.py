"""Run directories: atomic state, metrics cut to the checkpoint, other configurations, signals."""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from glmv.train.run import Run, RunState, atomic_save, stop_on_signal


@dataclass(frozen=True)
class Config:
    steps: int = 3
    lr: float = 0.1


def state(step: int, run: Run) -> RunState:
    return RunState(step, {"w": torch.ones(2)}, [{"state": {}}], {"p": {"a": 0.5}}, run.metrics_bytes(), 1.5)


def test_a_resumed_run_cuts_metrics_after_its_checkpoint(tmp_path: Path) -> None:
    run = Run(tmp_path, "sft", Config())
    assert run.load() is None
    run.log(1, {"loss": 1.0})
    run.save(state(1, run))
    run.log(2, {"loss": 0.5})
    run.close()
    again = Run(tmp_path, "sft", Config())
    loaded = again.load()
    assert loaded is not None
    assert (loaded.step, loaded.curriculum) == (1, {"p": {"a": 0.5}})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(r["phase"], r["step"], r["loss"]) for r in lines] == [("sft", 1, 1.0)]
    assert again.elapsed() >= 1.5


def test_tensorboard_shows_histograms_and_hides_what_was_cut(tmp_path: Path) -> None:
    run = Run(tmp_path, "rl", Config())
    run.load()
    run.log(1, {"reward": 0.5, "tiers/ocr": {"easy": 3, "hard": 1}})
    run.save(state(1, run))
    run.log(2, {"reward": 0.6})
    run.log(3, {"reward": 0.7})
    run.close()
    again = Run(tmp_path, "rl", Config())
    again.load()
    again.log(2, {"reward": 0.9})
    again.close()
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert [(e.step, round(e.value, 3)) for e in board.Scalars("rl/reward")] == [(1, 0.5), (2, 0.9)]
    assert board.Scalars("rl/tiers/ocr/easy")[0].value == 3


def test_saving_a_state_copies_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, saved = Run(tmp_path, "sft", Config()), {}
    monkeypatch.setattr("glmv.train.run.atomic_save", lambda value, path: saved.update(value))
    weight = torch.ones(2)
    run.save(RunState(1, {"w": weight}, [], None, 0, 0.0))
    assert saved["model"]["w"] is weight


def test_a_run_without_a_state_gives_way_to_another_configuration(tmp_path: Path) -> None:
    Run(tmp_path, "sft", Config()).load()  # stopped by an error before its first checkpoint
    Run(tmp_path, "sft", Config(lr=0.2))
    assert "lr: 0.2" in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize("text", ["mine: 1\n", "", "- 1\n"])
def test_a_config_file_that_is_not_of_a_run_is_kept(text: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ValueError, match="another configuration is there"):
        Run(tmp_path, "sft", Config())
    assert (tmp_path / "config.yaml").read_text() == text


def test_another_configuration_is_refused_by_name(tmp_path: Path) -> None:
    run = Run(tmp_path, "sft", Config())
    run.save(state(1, run))
    with pytest.raises(ValueError, match=r"differs in lr: 0.1 there, 0.2 asked"):
        Run(tmp_path, "sft", Config(lr=0.2))


def test_a_crash_while_saving_leaves_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.pt"
    atomic_save({"step": 1}, path)

    def crash(value: object, file: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", crash)
    with pytest.raises(OSError, match="disk full"):
        atomic_save({"step": 2}, path)
    assert torch.load(path) == {"step": 1}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_stops(number: int) -> None:
    before = signal.getsignal(number)  # a job in the background starts with an ignored SIGINT
    with stop_on_signal() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before
