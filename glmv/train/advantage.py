"""Group advantages. Groups go by sample id, never by tokens: two images under one question are two groups."""

from collections.abc import Sequence

import torch
from torch import Tensor

from glmv.train.config import AdvantageConfig


def group_advantage(rewards: Sequence[float], config: AdvantageConfig) -> Tensor:
    """Advantage of each answer of one group.

    Args:
        rewards: one reward an answer, at least two.
        config: `scale="std"`: (r - mean) / (std(ddof) + eps); `"none"`: r - mean (Dr.GRPO, SAIL-RL).

    Returns:
        [G] float64. Exactly zero where all rewards are equal.

    Raises:
        ValueError: a group of one, whose advantage would silently be its raw reward or NaN.
    """
    if len(rewards) < 2:
        raise ValueError(
            f"group_advantage: rewards must hold at least 2 answers of a prompt, got {len(rewards)}"
        )
    r = torch.tensor(rewards, dtype=torch.float64)
    centred = r - r.mean()
    if bool((r == r[0]).all()):
        return torch.zeros_like(r)  # not rounding noise of the mean
    if config.scale == "none":
        return centred
    return centred / (r.std(correction=config.ddof) + config.eps)
