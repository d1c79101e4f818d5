"""The SFT and RL loops: a stopped run resumes bit for bit, the checkpoint loads, metrics are complete."""

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from glmv.model import Glm4v
from glmv.train import rl as rl_module
from glmv.train import sft as sft_module
from glmv.train.config import RlConfig, SamplingConfig, SftConfig
from glmv.train.evaluate import EvalCommand, EvalConfig, evaluate_checkpoint
from glmv.train.rl import rl
from glmv.train.run import Interrupted
from glmv.train.sft import sft

SAMPLING = SamplingConfig(think_tokens=4, answer_tokens=6)
DOMAINS = ("ocr", "math", "chart", "vqa", "grounding", "click", "video")


def sft_config(data: Path, out: Path, steps: int = 4) -> SftConfig:
    return SftConfig(
        data=str(data / "train.jsonl"), out=str(out), steps=steps, batch_size=4, threads=1, save_every=3
    )


def rl_config(data: Path, model: Path, out: Path) -> RlConfig:
    return RlConfig(
        data=str(data / "train.jsonl"),
        out=str(out),
        model=str(model),
        steps=3,
        prompts=7,
        group_size=3,
        threads=1,
        save_every=2,
        offline_samples=2,
        sampling=SAMPLING,
    )


def weights(path: Path) -> dict[str, torch.Tensor]:
    return Glm4v.from_pretrained(path).state_dict()


def same(a: Path, b: Path) -> bool:
    x, y = weights(a), weights(b)
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    timed = ("time_s", "_per_s", "time/")
    return [{k: v for k, v in line.items() if not any(t in k for t in timed)} for line in lines]


def stop_after(monkeypatch: pytest.MonkeyPatch, module: object, function: str, calls: int) -> None:
    """Send Ctrl-C to ourselves within the given call."""
    original = getattr(module, function)
    count = 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal count
        count += 1
        if count == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **kwargs)

    monkeypatch.setattr(module, function, wrapped)


def test_a_stopped_sft_run_resumes_bit_for_bit(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sft(sft_config(data_dir, tmp_path / "whole"))
    with monkeypatch.context() as patch:
        stop_after(patch, sft_module, "train_step", 2)
        with pytest.raises(Interrupted, match="stopped at sft step 2"):
            sft(sft_config(data_dir, tmp_path / "stopped"))
    resumed = sft(sft_config(data_dir, tmp_path / "stopped"))
    assert same(whole, resumed)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "stopped")
    # a random start is near the uniform distribution: the mean over tokens is near log V
    start, vocab = metrics(tmp_path / "whole")[0]["loss"], weights(whole)["lm_head.weight"].shape[0]
    assert start == pytest.approx(math.log(vocab), rel=0.1)


def test_a_stopped_rl_run_resumes_bit_for_bit(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sft(sft_config(data_dir, tmp_path / "sft", steps=1))
    monkeypatch.setattr(rl_module, "score_group", graded_by_length)
    whole = rl(rl_config(data_dir, model, tmp_path / "whole"))
    with monkeypatch.context() as patch:
        stop_after(patch, rl_module, "iteration", 2)
        with pytest.raises(Interrupted, match="stopped at rl step 2"):
            rl(rl_config(data_dir, model, tmp_path / "stopped"))
    resumed = rl(rl_config(data_dir, model, tmp_path / "stopped"))
    assert same(whole, resumed)
    assert not same(model, whole)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "stopped")


def test_a_stop_in_the_last_step_is_a_stop(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    c = sft_config(data_dir, tmp_path / "sft", steps=1)
    with monkeypatch.context() as patch:
        stop_after(patch, sft_module, "train_step", 1)
        with pytest.raises(Interrupted, match="stopped at sft step 1 of 1"):
            sft(c)  # a demo must not go on to its next stage
    assert (sft(c) / "config.json").exists()


def test_an_rl_run_that_died_in_its_first_iteration_keeps_the_offline_tiers(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = sft(sft_config(data_dir, tmp_path / "sft", steps=1))
    monkeypatch.setattr(rl_module, "score_group", graded_by_length)
    whole = rl(rl_config(data_dir, model, tmp_path / "whole"))

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rl_module, "iteration", die)
        with pytest.raises(KeyboardInterrupt):
            rl(rl_config(data_dir, model, tmp_path / "died"))
    with monkeypatch.context() as patch:
        patch.setattr(rl_module, "offline_difficulty", lambda *_: pytest.fail("rolled out again"))
        resumed = rl(rl_config(data_dir, model, tmp_path / "died"))
    assert same(whole, resumed)
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "died")


def test_a_model_folder_appears_whole_or_not_at_all(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    c = sft_config(data_dir, tmp_path / "sft", steps=1)
    with monkeypatch.context() as patch:
        patch.setattr("glmv.data.process.Processor.save", die)
        with pytest.raises(KeyboardInterrupt):
            sft(c)
    assert not (tmp_path / "sft/model").exists()
    assert (sft(c) / "tokenizer.json").exists()
    assert sorted(p.name for p in (tmp_path / "sft").iterdir() if p.is_dir()) == ["model", "tensorboard"]


def graded_by_length(prompt: Any, completions: Any, processor: Any) -> list[Any]:
    """A reward that a random model earns now and then, so that groups have signal."""
    from dataclasses import replace

    from glmv.train.score import score_group

    scored = score_group(prompt, completions, processor)
    return [replace(s, reward=float(s.completion.tokens.numel() % 2)) for s in scored]


def test_rl_metrics_are_complete(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = sft(sft_config(data_dir, tmp_path / "sft", steps=1))
    monkeypatch.setattr(rl_module, "score_group", graded_by_length)
    rl(rl_config(data_dir, model, tmp_path / "rl"))
    lines = [json.loads(line) for line in (tmp_path / "rl/metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [1, 2, 3]
    wanted = [
        *(
            "reward",
            "accuracy",
            "format",
            "judge_failures",
            "prompts_missing",
            "valid_share",
            "expansion_ratio",
            "expansion_ema",
            "tiers",
            "response_length",
        ),
        *("thinking_rate", "reasons", "clip_low", "clip_high", "ratio_mean", "ratio_max", "approx_kl"),
        *("entropy", "grad_norm", "lr", "bin_fill", "micro_steps", "dp_imbalance", "rollout_tokens_per_s"),
        *("markers", "warnings", "train_tokens_per_s", "time/rollout", "time/score", "time/train"),
    ]
    for line in lines:
        assert not [key for key in wanted if key not in line]
        assert sum(line["tiers"].values()) == 64
        for domain in DOMAINS:
            assert f"tiers/{domain}" in line
    per_domain = ("reward", "accuracy", "response_length", "thinking_rate", "judge_failures", "reasons")
    drawn = [d for d in DOMAINS if f"reward/{d}" in lines[0]]
    assert drawn
    assert not [f"{key}/{d}" for key in per_domain for d in drawn if f"{key}/{d}" not in lines[0]]
    assert all(f"valid_share/{d}" in lines[0] for d in drawn)
    # update 5 of 0 .. 5: warm-up over 10 updates, and 5 / 6 of the decay to 0.3
    assert lines[-1]["lr"] == pytest.approx(3e-4 * 6 / 10 * (1 - 0.7 * 5 / 6))
    # the policy that sampled is the policy of the first update: its ratio is 1 and nothing is clipped
    assert lines[0]["ratio_mean"] == pytest.approx(1, abs=1e-2)


def test_eval_of_a_checkpoint(data_dir: Path, tmp_path: Path) -> None:
    model = sft(sft_config(data_dir, tmp_path / "sft", steps=1))
    command = EvalCommand(
        model=str(model),
        data=str(data_dir / "train.jsonl"),
        output=str(tmp_path / "eval.json"),
        threads=1,
        eval=EvalConfig(group_size=2, sampling=SAMPLING),
    )
    assert evaluate_checkpoint(command).endswith("over 64 prompts")
    record = json.loads((tmp_path / "eval.json").read_text())
    assert record["overall"]["n"] == 64
    assert sum(f["n"] for f in record["domains"].values()) == 64
    assert sum(f["n"] for f in record["cells"].values()) == 64


def test_sft_without_a_response_names_the_row(data_dir: Path, tmp_path: Path) -> None:
    lines = (data_dir / "train.jsonl").read_text().splitlines()
    record = json.loads(lines[1])
    del record["response"]
    for image in (data_dir / "images").parent.iterdir():
        if image.is_dir():
            (tmp_path / image.name).symlink_to(image)
    (tmp_path / "train.jsonl").write_text("\n".join([lines[0], json.dumps(record)]) + "\n")
    with pytest.raises(ValueError, match=f"{record['extra_info']['id']} has none"):
        sft(sft_config(tmp_path, tmp_path / "out"))
