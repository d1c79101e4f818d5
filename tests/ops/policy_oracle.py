"""Policy losses on padded [S, L] tensors with masks, by autograd: the way that TRL and verl write them."""

import itertools
from typing import Any

import torch
from torch import Tensor

from tests.ops.attention_oracle import cu

LENGTHS = [3, 0, 5, 1, 0, 4]
M, S = sum(LENGTHS), len(LENGTHS)
# Every meaningful combination of the names, with numbers that make all branches occur.
NAMES = [
    {"objective": objective, "level": level, "agg": agg, **extra}
    for objective, level, agg, extra in itertools.product(
        ("clip", "cispo"),
        ("token", "sequence"),
        ("sample", "token", "constant"),
        ({}, {"dual_clip": 1.5}, {"weight": True, "kl_coef": 0.1, "entropy_coef": 0.05}),
    )
    if objective == "clip" or (level == "token" and "dual_clip" not in extra)
]


def make(dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Arguments of policy_loss; the log-ratios reach far over both bounds, with advantages of both signs."""
    logp = -torch.rand(M, dtype=dtype) - 0.1
    return {
        "logp": logp.requires_grad_(),
        "logp_old": logp.detach() + 0.6 * torch.randn(M, dtype=dtype),
        "adv": torch.tensor([1.0, -2.0, -0.5, -1.5, 3.0, 0.7], dtype=dtype),
        "cu_seqlens": cu(LENGTHS),
        "denom": 3.5,
    }


def complete(options: dict[str, Any], like: Tensor) -> dict[str, Any]:
    """The tensors that the options call for."""
    drawn = dict(options)
    if options.pop("weight", False):
        drawn["weight"] = 0.5 + torch.rand_like(like)
    if "kl_coef" in options:
        drawn["logp_ref"] = like.detach() + 0.3 * torch.randn_like(like)
    return drawn


def padded(x: Tensor) -> Tensor:
    """[M] -> [S, L], zeros where there is no row."""
    rows = [torch.nn.functional.pad(part, (0, max(LENGTHS) - len(part))) for part in x.split(LENGTHS)]
    return torch.stack(rows)


def plain_loss(
    logp: Tensor, logp_old: Tensor, adv: Tensor, denom: float, objective: str, level: str, agg: str,
    eps_low: float = 0.2, eps_high: float = 0.28, dual_clip: float | None = None,
    weight: Tensor | None = None, logp_ref: Tensor | None = None, kl_coef: float = 0.0,
    ent: Tensor | None = None, entropy_coef: float = 0.0,
) -> Tensor:  # fmt: skip
    mask = padded(torch.ones_like(logp).detach())
    count, advantage = mask.sum(1, keepdim=True), adv.unsqueeze(1)
    log_ratio = padded(logp - logp_old)
    if level == "sequence":
        log_ratio = (log_ratio * mask).sum(1, keepdim=True) / count.clamp(min=1)
    ratio = log_ratio.exp()
    if objective == "cispo":
        loss = -ratio.clamp(max=1 + eps_high).detach() * advantage * padded(logp)
    else:
        loss = -torch.min(ratio * advantage, ratio.clamp(1 - eps_low, 1 + eps_high) * advantage)
        if dual_clip is not None:
            loss = torch.where(advantage < 0, torch.min(loss, -dual_clip * advantage), loss)
    loss = loss.expand_as(mask)
    if weight is not None:
        loss = loss * padded(weight)
    if logp_ref is not None:
        difference = padded(logp_ref - logp)
        loss = loss + kl_coef * (difference.exp() - difference - 1)
    if ent is not None:
        loss = loss - entropy_coef * padded(ent)
    if agg == "sample":
        return ((loss * mask).sum(1) / count.squeeze(1).clamp(min=1)).sum() / denom
    return (loss * mask).sum() / denom
