"""What an RL iteration logs: of its rollouts, its curriculum, its optimizer steps and its time."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from glmv.data.types import Completion, Prompt
from glmv.rewards.extract import BEGIN, END
from glmv.train.curriculum import SUCCESS_REWARD, Curriculum, is_valid
from glmv.train.score import Scored
from glmv.train.step import StepReport

# Reasons that say nothing of the answer: no judge was there, or its reply could not be read.
JUDGE_FAILURES = ("judge_unavailable", "judge_unparsed")


class Clock:
    """Seconds of each phase: `clock.lap("rollout")` ends the phase that began at the last lap."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = now - self._last
        self._last = now


def rollout_metrics(groups: Sequence[tuple[Prompt, Sequence[Scored]]]) -> dict[str, object]:
    """Of all answers, and of those of each domain: `reward`, `reward/ocr`, ...

    reward and accuracy (the share of rewards of at least SUCCESS_REWARD) leave out answers without a verdict.
    """
    out = _answer_metrics([s for _, group in groups for s in group])
    for domain in sorted({p.sample.domain for p, _ in groups}):
        own = [s for p, group in groups if p.sample.domain == domain for s in group]
        out |= {f"{name}/{domain}": value for name, value in _answer_metrics(own).items()}
    return out


def _answer_metrics(answers: Sequence[Scored]) -> dict[str, object]:
    rewards = [s.reward for s in answers if not math.isnan(s.reward)]
    return {
        "reward": _mean(rewards),
        "accuracy": _mean([r >= SUCCESS_REWARD for r in rewards]),
        "format": _mean([s.format_ok for s in answers]),
        "response_length": _mean([s.completion.tokens.numel() for s in answers]),
        "thinking_rate": _mean([s.thinking for s in answers]),
        "forced_rate": _mean([bool(s.completion.forced.any()) for s in answers]),
        "markers": _mean([s.text.count(BEGIN) + s.text.count(END) for s in answers]),
        "judge_failures": _mean([s.reason in JUDGE_FAILURES for s in answers]),
        "reasons": dict(sorted(Counter(s.reason for s in answers).items())),
    }


def curriculum_metrics(curriculum: Curriculum, rewards: Mapping[str, Sequence[float]]) -> dict[str, object]:
    """Share of groups with signal and the tier histogram, over all and per domain."""
    out: dict[str, object] = {
        "valid_share": _mean([is_valid(group) for group in rewards.values()]),
        "tiers": curriculum.tiers(),
    }
    for domain in sorted(curriculum.pool):
        groups = [group for i, group in rewards.items() if curriculum.domain_of[i] == domain]
        if groups:
            out[f"valid_share/{domain}"] = _mean([is_valid(group) for group in groups])
        out[f"tiers/{domain}"] = curriculum.tiers(domain)
    return out


def update_metrics(reports: Sequence[StepReport]) -> dict[str, object]:
    """Means over the optimizer steps of an iteration; nothing where no group had signal."""
    if not reports:
        return {"micro_steps": 0, "optimizer_steps": 0}
    kept = sum(r.kept for r in reports)
    out: dict[str, object] = {
        "loss": _mean([r.loss for r in reports]),
        "grad_norm": _mean([r.metrics["grad_norm"] for r in reports]),
        "lr": reports[-1].metrics["lr"],
        "bin_fill": _mean([r.bin_fill for r in reports]),
        "micro_steps": sum(r.micro_steps for r in reports),
        "optimizer_steps": len(reports),
        "dp_imbalance": 1.0,  # max over mean cost of the data-parallel ranks: there is one rank
    }
    for name in reports[0].sums:
        values = [r.sums[name] for r in reports]
        out["ratio_mean" if name == "ratio" else name] = (
            max(values) if name.endswith("_max") else sum(values) / kept
        )
    return out


def throughput(
    answers: Sequence[Sequence[Completion]], reports: Sequence[StepReport], seconds: Mapping[str, float]
) -> dict[str, object]:
    """Sampled tokens a second of rollout, and packed tokens a second of training."""
    sampled = sum(c.tokens.numel() for group in answers for c in group)
    trained = sum(r.tokens for r in reports)
    return {
        "rollout_tokens_per_s": sampled / seconds["rollout"],
        "train_tokens_per_s": trained / seconds["train"],
    }


def _mean(values: Sequence[float]) -> float:
    return float(sum(values) / len(values)) if values else 0.0
