"""What `policy_loss` and `grpo_loss` share: each row of a loss as (value, slopes), and what is logged of it.

Slopes are written out by hand, so that a fused loss needs no autograd. Both losses use these pairs, hence
they have the same gradient. The formulas: policy_loss.py.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from glmv import check

OBJECTIVES, LEVELS, AGGREGATIONS = ("clip", "cispo"), ("token", "sequence"), ("sample", "token", "constant")
# exp(20) = 5e8: far beyond any ratio with a meaning, far below overflow.
MAX_LOG_RATIO = 20.0


class Options(NamedTuple):
    objective: str
    level: str
    agg: str
    eps_low: float
    eps_high: float
    dual_clip: float | None
    kl_coef: float
    entropy_coef: float


class Rows(NamedTuple):
    """What a loss knows of each row besides the policy: [M] each."""

    adv: Tensor
    share: Tensor  # of the row in the loss; 0 for padding
    weight: Tensor | None
    logp_old: Tensor | None
    logp_ref: Tensor | None

    def part(self, rows: slice) -> "Rows":
        optional = [None if x is None else x[rows] for x in self[2:]]
        return Rows(self.adv[rows], self.share[rows], *optional)


class Terms(NamedTuple):
    """[M] each, times share: the loss of each row and its derivatives; None: no such term."""

    value: Tensor
    by_log_ratio: Tensor
    by_logp: Tensor | None  # besides the log-ratio
    by_ent: Tensor | None


def terms(log_ratio: Tensor, logp: Tensor, ent: Tensor | None, rows: Rows, o: Options) -> Terms:
    """The loss of each row; log_ratio [M] is that of the row or of its sequence."""
    objective = _cispo if o.objective == "cispo" else _clip
    value, slope = objective(log_ratio, logp, rows.adv, o)
    if rows.weight is not None:
        value, slope = value * rows.weight, slope * rows.weight
    by_logp = by_ent = None
    if rows.logp_ref is not None and o.kl_coef != 0:
        kl, by_d = _k3(rows.logp_ref - logp)
        value, by_logp = value + o.kl_coef * kl, _shared(-o.kl_coef * by_d, rows)
    if ent is not None and o.entropy_coef != 0:
        value, by_ent = value - o.entropy_coef * ent, -o.entropy_coef * rows.share
    return Terms(_shared(value, rows), _shared(slope, rows), by_logp, by_ent)


def measure(log_ratio: Tensor, logp: Tensor, ent: Tensor | None, rows: Rows, o: Options) -> dict[str, Tensor]:
    """The `metrics` of PolicyLoss: sums over the rows that are no padding."""
    ratio = _exp(log_ratio)
    parts = {"ratio": ratio, "approx_kl": _k3(log_ratio)[0]}
    over = ratio > 1 + o.eps_high
    if o.objective == "cispo":
        parts["clip_high"] = over
    else:
        parts["clip_high"] = over & (rows.adv > 0)
        parts["clip_low"] = (ratio < 1 - o.eps_low) & (rows.adv < 0)
    if o.dual_clip is not None:
        parts["clip_dual"] = (ratio > o.dual_clip) & (rows.adv < 0)
    if rows.logp_ref is not None:
        parts["kl_ref"] = _k3(rows.logp_ref - logp)[0]
    if ent is not None:
        parts["entropy"] = ent
    return {name: torch.where(rows.share > 0, x, 0).sum(dtype=torch.float64) for name, x in parts.items()}


def ratio_max(log_ratio: Tensor, rows: Rows) -> Tensor:
    """[], 0 without rows."""
    ratio = torch.where(rows.share > 0, _exp(log_ratio), 0)
    return torch.cat((ratio, ratio.new_zeros(1))).amax()


def _clip(log_ratio: Tensor, logp: Tensor, adv: Tensor, o: Options) -> tuple[Tensor, Tensor]:
    ratio = _exp(log_ratio)
    falling = ratio.clamp(1 - o.eps_low, o.dual_clip)  # for A < 0; for A >= 0 only the upper bound binds
    bounded = torch.where(adv < 0, falling, ratio.clamp(max=1 + o.eps_high))
    free = (bounded == ratio) & (log_ratio.abs() <= MAX_LOG_RATIO)
    return -adv * bounded, torch.where(free, -adv * ratio, 0)


def _cispo(log_ratio: Tensor, logp: Tensor, adv: Tensor, o: Options) -> tuple[Tensor, Tensor]:
    slope = -_exp(log_ratio).clamp(max=1 + o.eps_high) * adv
    return slope * logp, slope


def _k3(d: Tensor) -> tuple[Tensor, Tensor]:
    """exp(d) - 1 - d and its slope; d clamped like a log-ratio."""
    near = d.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return near.expm1() - near, torch.where(near == d, near.expm1(), 0)


def _exp(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()


def _shared(x: Tensor, rows: Rows) -> Tensor:
    """x * share; padding may hold anything, NaN too."""
    return torch.where(rows.share > 0, x * rows.share, 0)


# ---- arguments -----------------------------------------------------------------------------------------


def check_options(op: str, o: Options, logp_ref: Tensor | None) -> None:
    """Raise ValueError for unknown names, numbers out of range and options that exclude each other."""
    check.choice(op, "objective", o.objective, OBJECTIVES)
    check.choice(op, "level", o.level, LEVELS)
    check.choice(op, "agg", o.agg, AGGREGATIONS)
    check.that(op, "eps_low", 0 <= o.eps_low <= 1, "within 0 and 1", o.eps_low)
    check.that(op, "eps_high", o.eps_high >= 0, "at least 0", o.eps_high)
    check.that(op, "kl_coef", o.kl_coef == 0 or logp_ref is not None, "0 without logp_ref", o.kl_coef)
    if o.dual_clip is not None:
        check.that(op, "dual_clip", o.dual_clip > 1, "None or above 1", o.dual_clip)
    if o.objective == "cispo":
        check.that(op, "level", o.level == "token", "'token' with objective 'cispo'", o.level)
        check.that(op, "dual_clip", o.dual_clip is None, "None with objective 'cispo'", o.dual_clip)


def prepare(
    op: str, like: Tensor, adv: Tensor, cu_seqlens: Tensor, denom: float | Tensor, agg: str,
    weight: tuple[str, Tensor | None], logp_old: Tensor | None, logp_ref: Tensor | None,
) -> tuple[Rows, Tensor]:  # fmt: skip
    """Check the tensors; the Rows, and the sequence of each row [M] int64 (S: padding).

    `like` [M] has the device and dtype of them all; `weight` comes with the name that messages give it.
    """
    num_rows, device = len(like), like.device
    for name, x in (weight, ("logp_old", logp_old), ("logp_ref", logp_ref)):
        if x is not None:
            check.tensor(op, name, x, (f"M={num_rows}",), (like.dtype,), device)
    check.tensor(op, "cu_seqlens", cu_seqlens, ("S+1",), (torch.int32,), device)
    check.that(op, "cu_seqlens", len(cu_seqlens) > 0, "[S+1] with at least one bound", cu_seqlens)
    sequences = len(cu_seqlens) - 1
    per_row = isinstance(adv, Tensor) and adv.dim() == 1 and len(adv) == num_rows != sequences
    size = f"M={num_rows}" if per_row else f"S={sequences}"
    check.tensor(op, "adv", adv, (size,), (like.dtype,), device)
    if device.type == "cpu" and not torch.compiler.is_compiling():
        check.cu_seqlens(op, "cu_seqlens", cu_seqlens, num_rows, device)
        check.that(op, "denom", float(denom) > 0, "above 0", denom)
    row = torch.arange(num_rows, device=device, dtype=torch.int32)
    segment = torch.searchsorted(cu_seqlens[1:], row, right=True)
    share = like.new_ones(num_rows) / denom
    if agg == "sample":
        share = share / sequence_lengths(cu_seqlens)[segment]
    share = torch.where(segment < sequences, share, 0)
    if not per_row:
        adv = torch.cat((adv, adv.new_zeros(1)))[segment]
    constants = [None if x is None else x.detach() for x in (weight[1], logp_old, logp_ref)]
    return Rows(adv.detach(), share, *constants), segment


def sequence_lengths(cu_seqlens: Tensor) -> Tensor:
    """[S + 1] rows of each sequence; 1 for the last entry, which stands for padding."""
    return torch.cat((cu_seqlens.diff(), cu_seqlens.new_ones(1)))
