"""Policy-gradient losses on the log-probabilities of M kept rows, in closed form.

With x = logp - logp_old (clamped to +-20 before exp, as verl and OpenRLHF do), r = exp(x) and advantage A,

    clip    l = -min(r A, clip(r, 1 - eps_low, 1 + eps_high) A);  dual clip, A < 0: l = min(l, -dual_clip A)
    cispo   l = -stop(min(r, 1 + eps_high)) A logp
    row     weight l + kl_coef k3(logp_ref - logp) - entropy_coef ent,   k3(d) = exp(d) - 1 - d
    loss    sum over rows of share * row

level "token": each row has its ratio. level "sequence" (GSPO): x is the mean over the rows of the sequence,
and the gradient goes through that mean. agg "sample": share = 1 / (n_s denom), n_s the kept rows of the
sequence; "token" and "constant": share = 1 / denom. Nothing is divided by a count of this call: losses of
micro-steps add up to the loss of the step if each is given the denom of the step. Exactly on a bound the
gradient passes in full. The means of level "sequence" use index_add: on CUDA deterministic only under
torch.use_deterministic_algorithms.

Sources: PPO clip arXiv 1707.06347; dual clip 1912.09729; GRPO 2402.03300; clip-higher (DAPO) 2503.14476;
Dr. GRPO 2503.20783; CISPO 2506.13585; GSPO 2507.18071; k3: Schulman, "Approximating KL divergence" (2020).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from glmv import check
from glmv.ops import policy_terms
from glmv.ops.policy_terms import Options, Rows


@dataclass(frozen=True)
class PolicyLoss:
    """A loss and what a trainer logs of it.

    `metrics` are sums over the `rows` kept rows: add both up over micro-steps and ranks, then divide, and
    they are means. clip_low, clip_high, clip_dual (rows that this bound holds back), ratio, approx_kl (k3 of
    the log-ratio: distance from the policy that sampled), kl_ref (k3 to the reference), entropy; those whose
    inputs or options are not given are absent. `ratio_max` combines by maximum.
    """

    loss: Tensor  # [] with gradient
    metrics: dict[str, Tensor]  # [] float64 each, detached
    rows: Tensor  # [] int64
    ratio_max: Tensor  # [], 0 without rows


def policy_loss(
    logp: Tensor,
    logp_old: Tensor | None,
    adv: Tensor,
    cu_seqlens: Tensor,
    *,
    denom: float | Tensor,
    objective: str = "clip",
    level: str = "token",
    agg: str = "sample",
    eps_low: float = 0.2,
    eps_high: float = 0.28,
    dual_clip: float | None = None,
    weight: Tensor | None = None,
    logp_ref: Tensor | None = None,
    kl_coef: float = 0.0,
    ent: Tensor | None = None,
    entropy_coef: float = 0.0,
) -> PolicyLoss:
    """The policy loss of M kept rows; gradients go to `logp` and `ent`.

    Args:
        logp: [M] float32 | float64 of the labels under the policy; the other tensors are on its device and
            have its dtype.
        logp_old: [M] under the policy that sampled; None: they are the same policy, ratio 1.
        adv: [S] per sequence, or [M] per row ([S] where S = M).
        cu_seqlens: [S+1] int32, bounds of the sequences in kept rows; rows beyond the last are padding.
        denom: > 0. agg "sample": sequences of the whole optimizer step that have a kept row, those with zero
            advantage included; "token": kept rows of the step; "constant": sequences times a constant length.
        objective, level, agg, eps_low, eps_high, dual_clip (> 1): see the module text. cispo has no level
            "sequence" and no dual clip.
        weight: [M], a factor of the objective, not of KL and entropy: an importance weight, say.
        logp_ref, kl_coef: [M] under a reference policy, and the weight of the KL term.
        ent, entropy_coef: [M] entropies of the policy, and the weight of the bonus for them.

    Raises ValueError or TypeError for arguments that do not fit or options that exclude each other.
    """
    op = "policy_loss"
    check.tensor(op, "logp", logp, ("M",), (torch.float32, torch.float64))
    o = Options(objective, level, agg, eps_low, eps_high, dual_clip, kl_coef, entropy_coef)
    policy_terms.check_options(op, o, logp_ref)
    if ent is None:
        check.that(op, "entropy_coef", entropy_coef == 0, "0 without ent", entropy_coef)
    else:
        check.tensor(op, "ent", ent, (f"M={len(logp)}",), (logp.dtype,), logp.device)
    rows, segment = policy_terms.prepare(
        op, logp, adv, cu_seqlens, denom, agg, ("weight", weight), logp_old, logp_ref
    )
    return policy_loss_of(logp, ent, rows, segment, cu_seqlens, o)


def policy_loss_of(
    logp: Tensor, ent: Tensor | None, rows: Rows, segment: Tensor, cu_seqlens: Tensor, o: Options
) -> PolicyLoss:
    """`policy_loss` of checked arguments; rows and segment [M] from `policy_terms.prepare`."""
    log_ratio = logp - (logp.detach() if rows.logp_old is None else rows.logp_old)
    if o.level == "sequence":
        sums = log_ratio.new_zeros(len(cu_seqlens)).index_add(0, segment, log_ratio)
        log_ratio = (sums / policy_terms.sequence_lengths(cu_seqlens))[segment]
    constants = log_ratio.detach(), logp.detach(), None if ent is None else ent.detach()
    t = policy_terms.terms(*constants, rows, o)
    loss = t.value + t.by_log_ratio * _zero_with_slope_1(log_ratio)
    if t.by_logp is not None:
        loss = loss + t.by_logp * _zero_with_slope_1(logp)
    if ent is not None and t.by_ent is not None:
        loss = loss + t.by_ent * _zero_with_slope_1(ent)
    return report(loss.sum(), *constants, rows, o)


def report(
    loss: Tensor, log_ratio: Tensor, logp: Tensor, ent: Tensor | None, rows: Rows, o: Options
) -> PolicyLoss:
    """`loss` with its metrics; the other tensors are detached."""
    metrics = policy_terms.measure(log_ratio, logp, ent, rows, o)
    return PolicyLoss(loss, metrics, (rows.share > 0).sum(), policy_terms.ratio_max(log_ratio, rows))


def _zero_with_slope_1(x: Tensor) -> Tensor:
    """Carries a known slope into autograd; an entry that is not finite carries none, instead of NaN."""
    x = torch.where(x.isfinite(), x, 0)
    return x - x.detach()
