"""Reinforcement learning with curriculum sampling: `glmv rl --config recipes/rlcs-tiny.yaml`.

One iteration: draw prompts -> rollouts -> rewards -> choose groups -> advantages -> packed optimizer steps.
Recipe: GLM-4.5V / GLM-4.1V-Thinking, arXiv 2507.01006 (RLCS); GRPO: arXiv 2402.03300.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glmv.data import row
from glmv.data.process import Processor
from glmv.data.types import Prompt, Row, Sample
from glmv.model import Glm4v
from glmv.rewards.monitor import warnings
from glmv.train.advantage import group_advantage
from glmv.train.config import RlConfig
from glmv.train.curriculum import SUCCESS_REWARD, Curriculum
from glmv.train.loading import load_model, read_prompts
from glmv.train.metrics import Clock, curriculum_metrics, rollout_metrics, throughput, update_metrics
from glmv.train.optim import Optimizer
from glmv.train.progress import Progress
from glmv.train.rollout import generate, logit_bias
from glmv.train.run import Run, stop_on_signal
from glmv.train.score import Scored, score_group
from glmv.train.sft import Stage, checkpoint, save_model
from glmv.train.step import loss_denominator, policy_loss, train_step
from glmv.train.watch import HeldOut, records

Group = tuple[Prompt, list[Scored]]
# Prompts a generation call of the offline difficulty.
OFFLINE_BATCH = 96


@dataclass(frozen=True)
class Pool:
    """The prompts that the curriculum draws from."""

    samples: Mapping[str, Sample]
    root: Path
    processor: Processor
    logit_bias: Tensor  # [V] float32, the same in rollout and update
    max_answer: int  # tokens
    capacity_tokens: int  # that a prompt and its answer must fit in
    reference: Glm4v | None = None  # the starting checkpoint, where the loss has a KL term
    held_out: HeldOut | None = None  # rows of the strict check of the verifiers

    def prompts(self, ids: Sequence[str]) -> list[Prompt]:
        """Raises ValueError for a prompt whose longest answer would not fit in a micro-step."""
        prompts = [self.processor.prompt(self.samples[i], self.root) for i in ids]
        for p in prompts:
            if p.tokens.numel() + self.max_answer > self.capacity_tokens:
                raise ValueError(
                    f"sample {p.sample.id}: a prompt of {p.tokens.numel()} tokens and an answer of up to "
                    f"{self.max_answer} do not fit in capacity_tokens={self.capacity_tokens}"
                )
        return prompts


def rl(config: RlConfig) -> Path:
    """Train a checkpoint by GRPO with curriculum sampling.

    Writes metrics, checkpoints and, at the end, `<out>/model` in Hugging Face's layout. The same command
    resumes a run that was stopped.

    Args:
        config: the configuration (`--config file.yaml`, or one flag a field).
    """
    torch.set_num_threads(config.threads)
    model, processor = load_model(config.model)
    pool = make_pool(config, processor, model)
    run = Run(config.out, "rl", config)
    stage = Stage(model, Optimizer(model, config.optim, config.steps * config.minibatches))
    train(stage, pool, config, run)
    return save_model(stage.model, processor, Path(config.out))


def make_pool(config: RlConfig, processor: Processor, model: Glm4v) -> Pool:
    """Read the prompts; `model` is the starting checkpoint."""
    return Pool(
        samples={s.id: s for s in read_prompts(config.data)},  # no id stands there twice
        root=Path(config.data).parent,
        processor=processor,
        logit_bias=logit_bias(processor, model.lm_head_weight.shape[0]),
        max_answer=config.sampling.max_tokens,
        capacity_tokens=config.capacity_tokens,
        reference=deepcopy(model).requires_grad_(False) if config.loss.kl_coef else None,
        held_out=HeldOut.read(config),
    )


def train(stage: Stage, pool: Pool, config: RlConfig, run: Run) -> None:
    """The loop: from the state in `run`, or from the start, to `config.steps`.

    Raises:
        Interrupted: the run was asked to stop; its state is saved.
        ValueError: the set has too few prompts of a domain, or none.
    """
    curriculum = new_curriculum(pool, config, {})  # refuses an unusable set before any rollout
    if state := run.load():
        stage.restore(state)
        assert state.curriculum is not None
        curriculum.load_state_dict(state.curriculum)
    else:
        curriculum = new_curriculum(pool, config, offline_difficulty(stage, pool, config))
        run.save(stage.state(run, curriculum.state_dict()))  # the offline rollouts are not made twice
    checks = pool.held_out is not None
    history = records(run.lines(), checks)
    with stop_on_signal() as stopped, Progress(run.phase, config.steps, stage.step) as bar:
        while stage.step < config.steps:
            metrics = iteration(stage, pool, curriculum, config)
            stage.step += 1
            if pool.held_out and stage.step % config.check_every == 0:
                metrics |= pool.held_out.measure(stage.model, pool.processor, config, stage.step)
            history += records([{**metrics, "step": stage.step}], checks)
            metrics["warnings"] = warnings(history)
            run.log(stage.step, metrics)
            bar.advance(f"reward {metrics['reward']:.2f}  groups {metrics['groups']}/{config.prompts}")
            last, stop = config.steps, stopped()
            checkpoint(run, stage, config.save_every, last, stop, curriculum.state_dict())
    run.close()


def new_curriculum(pool: Pool, config: RlConfig, p0: Mapping[str, float]) -> Curriculum:
    """The curriculum at the start of a run; `p0`: offline success rates."""
    samples = pool.samples
    labels = {i: int(s.extra_info["label"]) for i, s in samples.items() if "label" in s.extra_info}
    domains = {i: s.domain for i, s in samples.items()}
    curriculum = Curriculum(domains, config.curriculum, p0, labels, config.seed)
    curriculum.check_pools(config.prompts)
    return curriculum


def iteration(stage: Stage, pool: Pool, curriculum: Curriculum, config: RlConfig) -> dict[str, object]:
    """One draw, its rollouts and its optimizer steps; returns the metrics."""
    clock = Clock()
    expansion, asked = curriculum.expansion, curriculum.draw_size(config.prompts)
    prompts = pool.prompts(curriculum.draw(config.prompts))
    clock.lap("data")
    seed = config.seed * 1_000_003 + stage.step
    answers = generate(
        stage.model, pool.processor, prompts, config.group_size, config.sampling, seed, stage.step
    )
    clock.lap("rollout")
    scored = [(p, score_group(p, a, pool.processor)) for p, a in zip(prompts, answers, strict=True)]
    groups = [(p, graded(s)) for p, s in scored]
    rewards = {p.sample.id: [s.reward for s in group] for p, group in groups if len(group) > 1}
    chosen = curriculum.select(rewards, config.prompts)
    curriculum.update(rewards)
    clock.lap("score")
    reports = []
    for k, rows in enumerate(minibatches(groups, chosen, config, seed)):
        denom = loss_denominator(config.loss, rows)
        temperature = config.sampling.temperature
        loss = policy_loss(stage.model, config.loss, denom, temperature, pool.logit_bias, pool.reference)
        step = stage.step * config.minibatches + k
        reports.append(train_step(stage.model, stage.optimizer, rows, loss, config.capacity_tokens, step))
    clock.lap("train")
    return {
        **rollout_metrics(scored),
        "expansion_ema": expansion,
        "expansion_ratio": curriculum.ratio,
        **curriculum_metrics(curriculum, rewards),
        "prompts": len(prompts),
        "prompts_missing": asked - len(prompts),  # a domain's pool was smaller than its expanded share
        "groups": len(chosen),
        **update_metrics(reports),
        **throughput(answers, reports, clock.seconds),
        **{f"time/{name}": seconds for name, seconds in clock.seconds.items()},
    }


def graded(scored: Sequence[Scored]) -> list[Scored]:
    """The answers that have a reward: one that no judge could grade (NaN) is masked, it is no 0."""
    return [s for s in scored if not math.isnan(s.reward)]


def minibatches(
    groups: Sequence[Group], chosen: Sequence[str], config: RlConfig, seed: int
) -> Iterator[list[Row]]:
    """The rows of each optimizer step: the chosen groups in a seeded order, split as evenly as they go."""
    by_id = {p.sample.id: (p, scored) for p, scored in groups}
    order = np.random.default_rng((seed, 2)).permutation(len(chosen))
    for part in np.array_split(order, config.minibatches):
        if len(part):
            yield [r for i in part for r in group_rows(*by_id[chosen[i]], config)]


def group_rows(prompt: Prompt, scored: Sequence[Scored], config: RlConfig) -> list[Row]:
    """One training row an answer; inserted tokens stand in the context and in no loss."""
    advantages = group_advantage([s.reward for s in scored], config.advantage).tolist()
    rows = []
    for s, adv in zip(scored, advantages, strict=True):
        keep = ~s.completion.forced
        rows.append(row(prompt, s.completion.tokens, keep, s.completion.logp[keep], adv))
    return rows


def offline_difficulty(stage: Stage, pool: Pool, config: RlConfig) -> dict[str, float]:
    """Success rate of every prompt under the starting checkpoint, over `offline_samples` answers.

    A prompt none of whose answers got a verdict has no entry.
    """
    if config.offline_samples == 0:
        return {}
    ids = list(pool.samples)
    rates: dict[str, float] = {}
    with Progress("offline tiers", len(ids)) as bar:
        for start in range(0, len(ids), OFFLINE_BATCH):
            prompts = pool.prompts(ids[start : start + OFFLINE_BATCH])
            seed = config.seed * 1_000_003 + 500_009 + start
            answers = generate(
                stage.model, pool.processor, prompts, config.offline_samples, config.sampling, seed
            )
            for prompt, group in zip(prompts, answers, strict=True):
                scored = graded(score_group(prompt, group, pool.processor))
                if scored:
                    rates[prompt.sample.id] = sum(s.reward >= SUCCESS_REWARD for s in scored) / len(scored)
            bar.advance(n=len(prompts))
    return rates
