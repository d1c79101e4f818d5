"""Keeping the load of the experts even: the sequence-wise balance loss and the loss-free bias update.

Plain PyTorch on [T, E] and [E]; runs on any device. The ops of the router are in router.py.

Sources: DeepSeek-V3 (arXiv 2412.19437), eq. 17 to 20; loss-free balancing (arXiv 2408.15664).
"""

import torch
from torch import Tensor

from glmv import check
from glmv.ops.router import EPS, top_experts, widened


def balance_loss(
    logits: Tensor, cu_seqlens: Tensor, *, top_k: int = 8, coef: float = 1e-4, denom: float
) -> Tensor:
    """The sum over sequences of L_s, divided by `denom`: a scalar, float32 (float64 for float64 logits).

        L_s = coef * E / (K n_s^2) * sum_e c_e * sum_t p_te,  p = s / (sum_e s + 1e-20),  s = sigmoid(logits)

    for a sequence of n_s tokens; c_e counts those that have expert e among their `top_k` largest s (no bias).
    An even load gives L_s = coef. The gradient flows through p alone.

    Args:
        logits: [T, E] float.
        cu_seqlens: [S+1] int32 bounds of the sequences; an empty one gives 0, rows past the end are padding.
        top_k: K.
        coef: factor of the loss.
        denom: number of sequences of the whole optimizer step, so that micro-steps add up.

    Raises ValueError or TypeError for arguments that do not fit.
    """
    check.tensor("balance_loss", "logits", logits, ("T", "E"), check.FLOAT)
    tokens, experts = logits.shape
    if not torch.compiler.is_compiling():
        check.cu_seqlens("balance_loss", "cu_seqlens", cu_seqlens, tokens, logits.device)
    check.that("balance_loss", "top_k", 1 <= top_k <= experts, f"in [1, E={experts}]", top_k)
    check.that("balance_loss", "denom", denom > 0, "positive", denom)
    lengths = cu_seqlens.diff()
    segments = len(lengths)
    row = torch.arange(tokens, device=logits.device, dtype=torch.int32)
    segment = torch.searchsorted(cu_seqlens[1:], row, right=True)  # S for padding
    scores = widened(logits).masked_fill((segment == segments).unsqueeze(1), 0).sigmoid()
    p = scores / (scores.sum(1, keepdim=True) + EPS)
    cell = segment.unsqueeze(1) * experts + top_experts(scores.detach(), top_k)
    count = torch.zeros((segments + 1) * experts, dtype=torch.int64, device=logits.device)
    count = count.scatter_add(0, cell.flatten(), torch.ones_like(cell.flatten())).view(-1, experts)
    mass = p.new_zeros(segments + 1, experts).index_add(0, segment, p)
    per_segment = (count * mass)[:segments].sum(1) / lengths.clamp(min=1).square()
    return per_segment.sum() * (coef * experts / (top_k * denom))


@torch.no_grad()
def update_router_bias_(bias: Tensor, counts: Tensor, *, rate: float = 1e-3, center: bool = False) -> None:
    """In place: bias_e += rate * sign(mean(counts) - counts_e).

    Args:
        bias: [E] float32 | float64.
        counts: [E] int32 | int64, tokens of each expert in the whole step: summed over micro-steps and ranks.
            Compared as integers, so exact beyond 2^24 tokens.
        rate: step size.
        center: subtract the mean of the step: the bias keeps its mean, and the choice of experts is the same.

    Raises ValueError or TypeError for arguments that do not fit.
    """
    check.tensor("update_router_bias_", "bias", bias, ("E",), (torch.float32, torch.float64))
    experts = len(bias)
    check.tensor("update_router_bias_", "counts", counts, (f"E={experts}",), check.INDEX, bias.device)
    step = rate * (counts.sum() - counts.long() * experts).sign().to(bias.dtype)
    bias += step - step.mean() if center else step
