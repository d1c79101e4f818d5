"""One RL iteration at its edges: small pools, no signal, inserted tokens, no verdict, unusable rows."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from glmv.data.process import Processor
from glmv.data.types import Completion, Prompt
from glmv.model import Glm4v
from glmv.train import rl as rl_module
from glmv.train.config import LossConfig, RlConfig, SamplingConfig
from glmv.train.curriculum import Curriculum
from glmv.train.loading import read_prompts
from glmv.train.optim import Optimizer
from glmv.train.rl import Pool, group_rows, iteration, make_pool, offline_difficulty, rl
from glmv.train.score import Scored, score_group
from glmv.train.sft import Stage
from tests.numeric import ROLLOUT_LOGP_ATOL

Tiny = tuple[Glm4v, Processor]
Grade = Callable[[int, int], float]  # (tokens of the answer, its index) -> reward


def config(data_dir: Path, **options: Any) -> RlConfig:
    base = RlConfig(
        data=str(data_dir / "train.jsonl"),
        out="",
        model="tiny",
        prompts=7,
        group_size=3,
        threads=1,
        sampling=SamplingConfig(think_tokens=3, answer_tokens=5),
    )
    return replace(base, **options)


def start(tiny: Tiny, c: RlConfig) -> tuple[Stage, Pool]:
    model, processor = tiny
    return Stage(model, Optimizer(model, c.optim, c.steps)), make_pool(c, processor, model)


def curriculum_of(pool: Pool, c: RlConfig) -> Curriculum:
    return Curriculum({i: s.domain for i, s in pool.samples.items()}, c.curriculum, seed=c.seed)


def grade(monkeypatch: pytest.MonkeyPatch, reward: Grade, reason: str = "ok") -> None:
    def graded(prompt: Prompt, answers: list[Completion], processor: Processor) -> list[Scored]:
        scored = score_group(prompt, answers, processor)
        rewards = [reward(s.completion.tokens.numel(), i) for i, s in enumerate(scored)]
        return [replace(s, reward=r, reason=reason) for s, r in zip(scored, rewards, strict=True)]

    monkeypatch.setattr(rl_module, "score_group", graded)


def test_a_draw_beyond_the_pool_trains_on_the_pool(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(monkeypatch, lambda n, i: float(i == 0))
    c = config(data_dir)
    stage, pool = start(tiny, c)
    few = list(pool.samples)[:7]
    pool = replace(pool, samples={i: pool.samples[i] for i in few})
    curriculum = curriculum_of(pool, c)
    curriculum.ema = 4.0  # 28 prompts asked of a pool of 7
    for _ in range(3):
        metrics = iteration(stage, pool, curriculum, c)
        stage.step += 1
        asked = math.ceil(7 * metrics["expansion_ema"])  # type: ignore[operator]
        assert (metrics["prompts"], metrics["prompts_missing"]) == (7, asked - 7)


def test_a_share_beyond_the_pool_is_refused_before_any_rollout(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl_module, "generate", lambda *_: pytest.fail("rollouts before the check"))
    with pytest.raises(ValueError, match="its share of prompts=700 is 100: lower"):
        rl(config(data_dir, out=str(tmp_path / "out"), prompts=700))


def test_groups_without_signal_leave_the_weights_alone(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(monkeypatch, lambda n, i: 1.0)
    c = config(data_dir)
    stage, pool = start(tiny, c)
    before = {k: v.clone() for k, v in stage.model.state_dict().items()}
    metrics = iteration(stage, pool, curriculum_of(pool, c), c)
    assert (metrics["groups"], metrics["optimizer_steps"], metrics["valid_share"]) == (0, 0, 0.0)
    assert {metrics[key] for key in metrics if key.startswith("valid_share/")} == {0.0}
    assert metrics["expansion_ratio"] == c.curriculum.max_expansion
    assert all(torch.equal(v, before[k]) for k, v in stage.model.state_dict().items())


def test_every_iteration_samples_with_a_seed_of_its_own(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeds = []

    def generate(*args: Any) -> list[list[Completion]]:
        seeds.append(args[5])
        return original(*args)

    original = rl_module.generate
    monkeypatch.setattr(rl_module, "generate", generate)
    for seed in (0, 1):
        c = config(data_dir, seed=seed)
        stage, pool = start(tiny, c)
        curriculum = curriculum_of(pool, c)
        for stage.step in range(3):
            iteration(stage, pool, curriculum, c)
    assert len(set(seeds)) == 6


def test_more_minibatches_than_groups_take_one_step_a_group(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(monkeypatch, lambda n, i: float(i == 0))
    c = config(data_dir, minibatches=50)
    stage, pool = start(tiny, c)
    metrics = iteration(stage, pool, curriculum_of(pool, c), c)
    assert (metrics["groups"], metrics["optimizer_steps"]) == (7, 7)


def test_the_first_update_sees_the_log_probs_of_the_rollout(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # with `</think>` inserted in nearly every answer: a shift by one would show
    grade(monkeypatch, lambda n, i: float(i == 0))
    c = config(data_dir, minibatches=1)
    stage, pool = start(tiny, c)
    metrics = iteration(stage, pool, curriculum_of(pool, c), c)
    assert metrics["forced_rate"] > 0.5  # type: ignore[operator]
    assert metrics["ratio_mean"] == pytest.approx(1, abs=ROLLOUT_LOGP_ATOL)
    assert metrics["ratio_max"] == pytest.approx(1, abs=ROLLOUT_LOGP_ATOL)
    assert metrics["clip_low"] == metrics["clip_high"] == 0


def test_the_kl_term_holds_on_to_the_starting_checkpoint(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(monkeypatch, lambda n, i: float(i == 0))
    c = config(data_dir, minibatches=1, loss=LossConfig(kl_coef=0.1))
    stage, pool = start(tiny, c)
    assert pool.reference is not None
    before = {k: v.clone() for k, v in pool.reference.state_dict().items()}
    curriculum = curriculum_of(pool, c)
    kl = []
    for stage.step in range(2):
        kl.append(iteration(stage, pool, curriculum, c)["kl_ref"])
    assert kl[0] == pytest.approx(0, abs=ROLLOUT_LOGP_ATOL)  # the policy is the reference
    assert kl[1] > 100 * abs(kl[0])  # type: ignore[operator, arg-type]
    assert all(torch.equal(v, before[k]) for k, v in pool.reference.state_dict().items())


def test_an_inserted_token_is_context_and_no_target(
    tiny: Tiny, prompts: list[Prompt], data_dir: Path
) -> None:
    think_end = tiny[1].tokenizer.id("</think>")
    answers = [
        Completion(
            prompts[0].sample.id,
            index=i,
            tokens=torch.tensor([20, think_end, 21]),
            logp=torch.tensor([-1.0, 0.0, -3.0]),
            forced=torch.tensor([False, True, False]),
            finish="length",
        )
        for i in range(2)
    ]
    scored = [Scored(a, "", float(i), "ok", True, True) for i, a in enumerate(answers)]
    first, second = group_rows(prompts[0], scored, config(data_dir))
    assert first.tokens[-3:].tolist() == [20, think_end, 21]
    assert first.keep.nonzero()[:, 0].tolist() == [len(first.tokens) - 3, len(first.tokens) - 1]
    assert first.logp_old is not None
    assert first.logp_old.tolist() == [-1.0, -3.0]
    assert first.adv == -second.adv < 0


def test_an_answer_without_a_verdict_is_counted_and_masked(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of three answers the last has no verdict: two of every group are left, one of them right
    grade(monkeypatch, lambda n, i: (1.0, 0.0, math.nan)[i], reason="judge_unavailable")
    c = config(data_dir, offline_samples=3)
    stage, pool = start(tiny, c)
    assert set(offline_difficulty(stage, pool, c).values()) == {0.5}
    metrics = iteration(stage, pool, curriculum_of(pool, c), c)
    assert (metrics["reward"], metrics["accuracy"], metrics["judge_failures"]) == (0.5, 0.5, 1.0)
    assert metrics["reasons"] == {"judge_unavailable": 7 * 3}
    assert metrics["groups"] == 7
    json.loads(json.dumps(metrics), parse_constant=pytest.fail)  # no NaN


def test_no_verdict_at_all_keeps_the_start_difficulty(
    tiny: Tiny, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade(monkeypatch, lambda n, i: math.nan)
    c = config(data_dir)
    stage, pool = start(tiny, c)
    assert offline_difficulty(stage, pool, c) == {}


def test_a_prompt_over_the_capacity_is_named(tiny: Tiny, data_dir: Path) -> None:
    c = config(data_dir, capacity_tokens=20)
    stage, pool = start(tiny, c)
    with pytest.raises(ValueError, match=r"sample train-\d+: a prompt of \d+ tokens .* capacity_tokens=20"):
        offline_difficulty(stage, pool, c)


def write_rows(data_dir: Path, path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The first three text rows of the set, the last of them changed."""
    records = [json.loads(line) for line in (data_dir / "train.jsonl").read_text().splitlines()[:3]]
    for record in records:
        record.pop("images", None), record.pop("videos", None)
        record["prompt"][0]["content"] = "count"
    change(records[2])
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("reward_model"), "has no reward_model.ground_truth"),
        (lambda r: r["reward_model"].pop("kind"), "has no reward_model.kind: one of math, ocr"),
        (lambda r: r["reward_model"].update(options={"verifiable": False}), "needs a judge"),
        (lambda r: r["extra_info"].update(label=5), r"label must be 0 \(very easy\) to 4 .*, got 5"),
        (lambda r: r["extra_info"].update(label="hard"), r"label must be .*, got 'hard'"),
    ],
)
def test_a_row_that_rl_cannot_use_is_named(
    change: Callable[[dict[str, Any]], None], message: str, data_dir: Path, tmp_path: Path
) -> None:
    path = write_rows(data_dir, tmp_path / "rows.jsonl", change)
    with pytest.raises(ValueError, match=rf"rows\.jsonl: row train-\d*2 .*{message}"):
        read_prompts(str(path))


def test_an_empty_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"none\.jsonl has no rows"):
        read_prompts(str(tmp_path / "none.jsonl"))
