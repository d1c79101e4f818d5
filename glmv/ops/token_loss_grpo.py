"""A policy loss from hidden states, in one pass over chunks of rows where the loss allows it.

At level "token" the loss of a row depends on that row alone, so its slopes are known as soon as its logp and
entropy are: each chunk of logits is made once, reduced, overwritten with dlogits and turned into gradients
(three GEMMs of 2 M V C, against four of `linear_logp` and its backward pass). The gradients wait for the
backward pass, which scales them. Level "sequence" needs the log-ratio of a whole sequence first: there
grpo_loss is `linear_logp` and `policy_loss`, as it is in fp16, where gradients need the loss scale before
they are rounded.
"""

from typing import Any

import torch
from torch import Tensor

from glmv.backend import resolve
from glmv.ops import policy_terms
from glmv.ops.policy_loss import PolicyLoss, policy_loss_of, report
from glmv.ops.policy_terms import Options, Rows
from glmv.ops.token_loss import check_labels, empty_rows, logp_rows, logp_rows_bwd_, wide
from glmv.ops.token_loss_linear import (
    LinearGrads,
    check_linear,
    chunks,
    empty_grads,
    linear_logp,
    rows_per_chunk,
)

# ---- reference -----------------------------------------------------------------------------------------


def one_pass(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float,
    chunk_rows: int, constants: Rows, options: Options, grads: LinearGrads,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """loss [], logp, ent [M]; the gradients of the loss go to `grads`."""
    _, logp, ent = empty_rows(hidden)
    loss = hidden.new_zeros((), dtype=wide(hidden))
    for rows in chunks(len(hidden), chunk_rows):
        logits = hidden[rows] @ weight.T
        lse, logp[rows], ent[rows] = logp_rows(logits, labels[rows], logit_bias, inv_temperature)
        part = constants.part(rows)
        log_ratio = logp[rows] - (logp[rows] if part.logp_old is None else part.logp_old)
        t = policy_terms.terms(log_ratio, logp[rows], ent[rows], part, options)
        loss += t.value.sum()
        if grads.wanted:
            g_logp = t.by_log_ratio if t.by_logp is None else t.by_log_ratio + t.by_logp
            per_row = labels[rows], lse, ent[rows], g_logp, t.by_ent
            logp_rows_bwd_(logits, *per_row, logit_bias, inv_temperature)
            grads.add(rows, logits)
    return loss, logp, ent


# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::grpo_fwd", mutates_args=())
def _fwd(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, adv: Tensor, share: Tensor,
    row_weight: Tensor | None, logp_old: Tensor | None, logp_ref: Tensor | None,
    objective: str, eps_low: float, eps_high: float, dual_clip: float | None, kl_coef: float,
    entropy_coef: float, inv_temperature: float, chunk_rows: int,
    with_hidden: bool, with_weight: bool, backend: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    check_labels("grpo_loss", labels, len(weight))
    options = Options(objective, "token", "", eps_low, eps_high, dual_clip, kl_coef, entropy_coef)
    constants = Rows(adv, share, row_weight, logp_old, logp_ref)
    grads = LinearGrads(hidden, weight, with_hidden, with_weight)
    linear = hidden, weight, labels, logit_bias, inv_temperature, chunk_rows
    return (*one_pass(*linear, constants, options, grads), *grads.result())


@_fwd.register_fake
def _(hidden: Tensor, weight: Tensor, *args: Any) -> tuple[Tensor, ...]:
    _, logp, ent = empty_rows(hidden)
    return logp.new_empty(()), logp, ent, *empty_grads(hidden, weight, *args[-3:-1])


# ---- autograd ------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[3:])
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)  # no zeros of the size of the weight for the gradient of its gradient
    ctx.num_inputs = len(inputs)


def _backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    grads = [None if g is None or x.dim() != 2 else g * x for x in ctx.saved_tensors]
    return (*grads, *[None] * (ctx.num_inputs - 2))


_fwd.register_autograd(_backward, setup_context=_save)

# ---- backend table: that of token_loss -----------------------------------------------------------------

# ---- public function -----------------------------------------------------------------------------------


def grpo_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
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
    row_weight: Tensor | None = None,
    logp_ref: Tensor | None = None,
    kl_coef: float = 0.0,
    entropy_coef: float = 0.0,
    temperature: float = 1.0,
    logit_bias: Tensor | None = None,
    chunk_mb: float | None = None,
    backend: str = "auto",
) -> PolicyLoss:
    """`policy_loss` of `linear_logp(hidden, weight, labels)`: equal to it, fewer GEMMs at level "token".

    hidden [M, C], weight [V, C], labels [M], temperature, logit_bias, chunk_mb: as for `linear_logp`. The
    rest as for `policy_loss`, whose `weight` [M] is called `row_weight` here; logp_old, adv, row_weight,
    logp_ref are float32 (float64 with float64 hidden). Gradients go to hidden and weight. The entropy is
    always measured.

    Raises ValueError or TypeError for arguments that do not fit or options that exclude each other,
    BackendError if the backend cannot run them.
    """
    op = "grpo_loss"
    check_linear(op, hidden, weight, labels, logit_bias, temperature)
    o = Options(objective, level, agg, eps_low, eps_high, dual_clip, kl_coef, entropy_coef)
    policy_terms.check_options(op, o, logp_ref)
    like = hidden.new_empty(len(hidden), dtype=wide(hidden))
    constants, segment = policy_terms.prepare(
        op, like, adv, cu_seqlens, denom, agg, ("row_weight", row_weight), logp_old, logp_ref
    )
    chosen = resolve("token_loss", backend, hidden.device, hidden.dtype)
    if level == "sequence" or hidden.dtype == torch.float16:
        logp, ent = linear_logp(
            hidden, weight, labels, temperature, logit_bias=logit_bias, chunk_mb=chunk_mb, backend=chosen
        )
        return policy_loss_of(logp, ent, constants, segment, cu_seqlens, o)
    linear = hidden, weight, labels, logit_bias, 1 / temperature, rows_per_chunk(op, len(weight), chunk_mb)
    return _one_pass_loss(*linear, constants, o, chosen)


def _one_pass_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float,
    chunk_rows: int, constants: Rows, o: Options, backend: str,
) -> PolicyLoss:  # fmt: skip
    """Calls the op; the gradients that nobody will ask for are not made."""
    wanted = [torch.is_grad_enabled() and x.requires_grad for x in (hidden, weight)]
    loss, logp, ent, *_ = torch.ops.glmv.grpo_fwd(
        hidden, weight, labels, logit_bias, *constants, o.objective, o.eps_low, o.eps_high, o.dual_clip,
        o.kl_coef, o.entropy_coef, inv_temperature, chunk_rows, *wanted, backend,
    )  # fmt: skip
    log_ratio = logp - (logp if constants.logp_old is None else constants.logp_old)
    return report(loss, log_ratio, logp, ent, constants, o)
