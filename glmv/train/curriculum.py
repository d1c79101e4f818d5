"""Curriculum sampling (RLCS): which prompts to roll out, and which of their groups to train on.

Source: GLM-4.5V / GLM-4.1V-Thinking, arXiv 2507.01006, "Reinforcement Learning with Curriculum Sampling":
offline tiers by pass rate, an online update by every group, tier weights that favour the middle,
over-sampling by an EMA of the share of groups without signal, and the choice of the most balanced groups.
Where the paper is silent the choice is a field of `CurriculumConfig`.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glmv.train.config import CurriculumConfig

TIERS = ("very_easy", "easy", "medium", "hard", "very_hard")
# A success rate of at least this is in the tier of the same place; below the last: very_hard.
TIER_BOUNDS = (0.9, 0.7, 0.3, 0.1)
# A reward of at least this is a success.
SUCCESS_REWARD = 0.5
# A group whose rewards differ by no more than this has no gradient.
MIN_SPREAD = 1e-6


def tier(p: float) -> int:
    """Index into TIERS of a success rate."""
    return next((i for i, bound in enumerate(TIER_BOUNDS) if p >= bound), len(TIER_BOUNDS))


def merge_label(p: float, label: int) -> int:
    """Tier index of a pass rate and a human label 0..4: their mean, rounded towards medium."""
    mean = (tier(p) + label) / 2
    return math.ceil(mean) if mean < TIERS.index("medium") else math.floor(mean)


class Curriculum:
    """Difficulty of every prompt and the state that the choice of prompts depends on.

    Args:
        domains: sample id -> domain.
        config: see `CurriculumConfig`.
        p0: sample id -> offline success rate; 0.5 where missing.
        labels: sample id -> human difficulty 0 (very easy) .. 4 (very hard), merged with p0.
        seed: all draws are a function of (seed, iteration, state).

    Raises:
        ValueError: no prompts, a configured domain without prompts, or weights below 0 or all 0.
    """

    def __init__(
        self,
        domains: Mapping[str, str],
        config: CurriculumConfig,
        p0: Mapping[str, float] | None = None,
        labels: Mapping[str, int] | None = None,
        seed: int = 0,
    ):
        if not domains:
            raise ValueError("Curriculum: domains must name at least one sample, got none")
        self.config = config
        self.seed = seed
        self.domain_of = dict(domains)
        self.pool: dict[str, list[str]] = {}
        for sample_id, domain in self.domain_of.items():
            self.pool.setdefault(domain, []).append(sample_id)
        self.weights = _domain_weights(config.domains, self.pool)
        self.p = {s: float((p0 or {}).get(s, 0.5)) for s in self.domain_of}
        for sample_id, label in (labels or {}).items():
            self.p[sample_id] = _TIER_CENTRE[merge_label(self.p[sample_id], label)]
        self.iteration = 0
        self.ema = 1.0
        self.ratio = 1.0
        self.drawn_at: dict[str, int] = {}

    @property
    def expansion(self) -> float:
        """EMA of 1 / (1 - share of groups without signal): prompts to draw for each group to train on."""
        return self.ema

    def check_pools(self, n: int) -> None:
        """Raise ValueError if a domain has fewer prompts than its share of n, before any expansion."""
        for domain, weight in self.weights.items():
            share, held = math.floor(n * weight + 1e-9), len(self.pool[domain])
            if held < share:
                raise ValueError(
                    f"domain {domain!r} holds {held} prompts and its share of prompts={n} is {share}: lower "
                    "prompts, or the domain's weight in curriculum.domains"
                )

    def draw_size(self, n: int) -> int:
        """Prompts to draw for n groups to train on: ceil(n * expansion)."""
        return math.ceil(n * self.ema - 1e-9)

    def draw(self, n: int) -> list[str]:
        """Ids of `draw_size(n)` prompts, domains in their configured mix; opens the next iteration.

        A prompt never repeats in an iteration: a domain whose share is larger than its pool gives its pool.
        """
        self.iteration += 1
        rng = np.random.default_rng((self.seed, self.iteration))
        extra = quotas(self.draw_size(n) - n, self.weights, rng)
        drawn: list[str] = []
        for domain, quota in self._quotas(n).items():
            drawn += self._draw_domain(domain, quota + extra[domain], rng)
        self.drawn_at.update(dict.fromkeys(drawn, self.iteration))
        return drawn

    def update(self, rewards: Mapping[str, Sequence[float]]) -> None:
        """Move each prompt's difficulty by its group, the expansion ratio by the share without signal."""
        b, a = self.config.success_ema, self.config.ratio_ema
        for sample_id, group in rewards.items():
            success = sum(r >= SUCCESS_REWARD for r in group) / len(group)
            self.p[sample_id] += b * (success - self.p[sample_id])
        if rewards:
            not_valid = sum(not is_valid(group) for group in rewards.values()) / len(rewards)
            cap = self.config.max_expansion
            self.ratio = cap if not_valid >= 1 else min(cap, 1 / (1 - not_valid))
            self.ema = a * self.ratio + (1 - a) * self.ema

    def select(self, rewards: Mapping[str, Sequence[float]], n: int) -> list[str]:
        """Ids of at most n groups to train on: valid ones, the most balanced of each domain up to its quota.

        Fewer than n come back when too few groups have signal: count what came back for the denominator.
        """
        kept: list[str] = []
        by_domain: dict[str, list[str]] = {}
        for sample_id, group in rewards.items():
            if is_valid(group):
                by_domain.setdefault(self.domain_of[sample_id], []).append(sample_id)
        for domain, quota in self._quotas(n).items():
            ranked = sorted(by_domain.get(domain, []), key=lambda s: (-balance(rewards[s]), self._hash(s)))
            kept += ranked[:quota]
        return kept

    def tiers(self, domain: str | None = None) -> dict[str, int]:
        """Number of prompts in each tier, of one domain or of all."""
        ids = self.domain_of if domain is None else self.pool[domain]
        counts = dict.fromkeys(TIERS, 0)
        for sample_id in ids:
            counts[TIERS[tier(self.p[sample_id])]] += 1
        return counts

    def state_dict(self) -> dict[str, Any]:
        return {
            "iteration": self.iteration,
            "ema": self.ema,
            "ratio": self.ratio,
            "p": dict(self.p),
            "drawn_at": dict(self.drawn_at),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises ValueError if the state is of another set of prompts."""
        if set(state["p"]) != set(self.p):
            raise ValueError(
                f"Curriculum: state must hold the same {len(self.p)} prompts, got {len(state['p'])} other ids"
            )
        self.iteration, self.ema, self.ratio = (
            int(state["iteration"]),
            float(state["ema"]),
            float(state["ratio"]),
        )
        # In the order of the pool: a dict's order must not depend on where the state came from.
        self.p = {s: float(state["p"][s]) for s in self.p}
        self.drawn_at = dict(state["drawn_at"])

    def _quotas(self, n: int) -> dict[str, int]:
        """Groups of each domain to train on in this iteration: `draw` covers what `select` will keep."""
        return quotas(n, self.weights, np.random.default_rng((self.seed, self.iteration, 1)))

    def _draw_domain(self, domain: str, quota: int, rng: np.random.Generator) -> list[str]:
        """`quota` ids, or the whole pool if it is smaller."""
        pool = self.pool[domain]
        rested = self.iteration - self.config.cooldown
        fresh = [s for s in pool if self.drawn_at.get(s, -math.inf) < rested]
        drawn = self._draw_tiers(fresh, min(quota, len(fresh)), rng)
        if len(drawn) < quota:  # a small pool: those that should rest fill the gap, longest rested first
            resting = sorted(set(pool) - set(fresh), key=lambda s: (self.drawn_at[s], self._hash(s)))
            drawn += resting[: quota - len(drawn)]
        return drawn

    def _draw_tiers(self, ids: list[str], quota: int, rng: np.random.Generator) -> list[str]:
        """Draw without repeat: a tier by its ratio, then a sample of it uniformly."""
        if self.config.kind == "uniform":
            return [ids[i] for i in rng.permutation(len(ids))[:quota]]
        members: list[list[str]] = [[] for _ in TIERS]
        for i in rng.permutation(len(ids)):
            members[tier(self.p[ids[i]])].append(ids[i])
        ratio = np.array([self._tier_ratio(m) for m in members])
        drawn = []
        for _ in range(quota):
            left = np.array([bool(m) for m in members])
            share = ratio * left
            drawn.append(members[rng.choice(len(TIERS), p=share / share.sum())].pop())
        return drawn

    def _tier_ratio(self, members: Sequence[str]) -> float:
        """floor + (1 - floor) * mean 4 p (1 - p): near 0 and near 1 down, the middle up."""
        if not members:
            return 0.0
        teach = sum(4 * self.p[s] * (1 - self.p[s]) for s in members) / len(members)
        return self.config.floor + (1 - self.config.floor) * teach

    def _hash(self, sample_id: str) -> str:
        return hashlib.blake2b(
            f"{self.seed}:{self.iteration}:{sample_id}".encode(), digest_size=8
        ).hexdigest()


_TIER_CENTRE = (0.95, 0.8, 0.5, 0.2, 0.05)


def is_valid(rewards: Sequence[float]) -> bool:
    """A group has signal when its rewards differ (for binary rewards: neither all right nor all wrong)."""
    return max(rewards) - min(rewards) > MIN_SPREAD


def balance(rewards: Sequence[float]) -> float:
    """How near to half right and half wrong: 4 variances, from 0 (no spread) to 1 (as many 0s as 1s).

    Of binary rewards it is 4 p (1 - p) of the share p of right ones, so the nearest counts come first; one
    measure for both kinds, because a domain with partial credit has groups of both. Rounded, so that 3 of 8
    and 5 of 8 tie.
    """
    n = len(rewards)
    mean = sum(rewards) / n
    return round(4 * sum((r - mean) ** 2 for r in rewards) / n, 9)


def quotas(n: int, weights: Mapping[str, float], rng: np.random.Generator) -> dict[str, int]:
    """Split n over the domains by weight: floors first, the rest by a draw on the fractions."""
    exact = {d: n * w for d, w in weights.items()}
    out = {d: math.floor(x + 1e-9) for d, x in exact.items()}
    left = n - sum(out.values())
    if left:
        names = list(weights)
        fraction = np.array([max(exact[d] - out[d], 0.0) for d in names])
        for i in rng.choice(len(names), left, replace=False, p=fraction / fraction.sum()):
            out[names[i]] += 1
    return out


def _domain_weights(weights: Mapping[str, float], pool: Mapping[str, Sequence[str]]) -> dict[str, float]:
    missing = [d for d in weights if d not in pool]
    if missing:
        raise ValueError(f"Curriculum: domains must be among {sorted(pool)}, got {missing}")
    if any(w < 0 for w in weights.values()) or (weights and not any(weights.values())):
        raise ValueError(f"Curriculum: domain weights must be >= 0 with a positive sum, got {dict(weights)}")
    raw = (
        {d: float(weights.get(d, 0.0)) for d in sorted(pool)} if weights else dict.fromkeys(sorted(pool), 1.0)
    )
    total = sum(raw.values())
    return {d: w / total for d, w in raw.items() if w > 0}
