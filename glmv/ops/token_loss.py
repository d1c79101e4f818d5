"""Log-probability of a label and entropy of its distribution, row by row, from logits.

With z = (logits + logit_bias) / temperature over V tokens, lse = log sum exp z and p = exp(z - lse),

    logp = z_label - lse          ent = -sum_v p_v log p_v
    dlogits_v = (g_logp (1[v = label] - p_v) - g_ent p_v (log p_v + ent)) / temperature

in fp32 whatever the dtype of the logits (fp64 for fp64), logp and ent too. A logit of -inf has p = 0 and adds
nothing to ent; every row needs one finite logit. `logit_bias` gets no gradient.

The row functions, `logp_rows` and `logp_rows_bwd_`, know no loss: any loss is a function of logp and ent that
hands back g_logp and g_ent. token_loss_linear.py feeds them chunks of logits made from hidden states,
token_loss_grpo.py a policy loss in one pass.
"""

from typing import Any

import torch
from torch import Tensor

from glmv import check
from glmv.backend import always, register, resolve

# exp of it is 0 even in fp64; it stands for all smaller ones, since 0 * -inf is NaN.
LOG_ZERO = -1e3

# ---- reference -----------------------------------------------------------------------------------------


def logp_rows(
    logits: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float
) -> tuple[Tensor, Tensor, Tensor]:
    """lse, logp, ent [M] from logits [M, V]."""
    z = logits.to(wide(logits))
    z = z if logit_bias is None else z + logit_bias
    z = z if inv_temperature == 1 else z * inv_temperature
    log_p = z.log_softmax(-1)
    logp = log_p.gather(1, labels.unsqueeze(1)).squeeze(1)
    lse = z.amax(-1) - log_p.amax(-1)
    log_p.clamp_(min=LOG_ZERO)
    return lse, logp, torch.linalg.vecdot(log_p.exp(), log_p).neg_()


def logp_rows_bwd_(
    logits: Tensor, labels: Tensor, lse: Tensor, ent: Tensor, g_logp: Tensor, g_ent: Tensor | None,
    logit_bias: Tensor | None, inv_temperature: float,
) -> None:  # fmt: skip
    """Overwrite logits [M, V] with dlogits; g_ent None: no gradient comes from ent."""
    log_p = logits.to(wide(logits))
    if logit_bias is not None:
        log_p.add_(logit_bias)
    log_p.mul_(inv_temperature).sub_(lse.unsqueeze(1))
    if g_ent is None:
        grad = log_p.exp_().mul_(-g_logp.unsqueeze(1))
    else:
        p = log_p.exp()
        slope = log_p.clamp_(min=LOG_ZERO).add_(ent.unsqueeze(1)).mul_(-g_ent.unsqueeze(1))
        grad = slope.sub_(g_logp.unsqueeze(1)).mul_(p)
    grad.scatter_add_(1, labels.unsqueeze(1), g_logp.unsqueeze(1))
    grad.mul_(inv_temperature)
    if grad is not logits:
        logits.copy_(grad)


def wide(x: Tensor) -> torch.dtype:
    """The dtype of sums over values like x: at least fp32."""
    return torch.promote_types(x.dtype, torch.float32)


# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::logp_fwd", mutates_args=())
def _fwd(
    logits: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float, backend: str
) -> tuple[Tensor, Tensor, Tensor]:
    check_labels("logp", labels, logits.shape[1])
    return logp_rows(logits, labels, logit_bias, inv_temperature)


def empty_rows(x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Room for lse, logp, ent of the rows of x [M, ...]."""
    lse, logp, ent = (x.new_empty(len(x), dtype=wide(x)) for _ in range(3))
    return lse, logp, ent


_fwd.register_fake(empty_rows)


@torch.library.custom_op("glmv::logp_bwd", mutates_args=())
def _bwd(
    logits: Tensor, labels: Tensor, lse: Tensor, ent: Tensor, g_logp: Tensor, g_ent: Tensor,
    logit_bias: Tensor | None, inv_temperature: float, backend: str,
) -> Tensor:  # fmt: skip
    dlogits = logits.clone(memory_format=torch.contiguous_format)
    logp_rows_bwd_(dlogits, labels, lse, ent, g_logp, g_ent, logit_bias, inv_temperature)
    return dlogits


@_bwd.register_fake
def _(logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


# ---- autograd ------------------------------------------------------------------------------------------


def save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """Keep the tensors among the inputs (they come first), lse and ent; lse itself gets no gradient."""
    tensors = [x for x in inputs if x is None or isinstance(x, Tensor)]
    ctx.save_for_backward(*tensors, output[0], output[2])
    ctx.flags = inputs[len(tensors) :]
    ctx.mark_non_differentiable(output[0])


def _backward(ctx: Any, _: Tensor, g_logp: Tensor, g_ent: Tensor) -> tuple[Tensor | None, ...]:
    logits, labels, logit_bias, lse, ent = ctx.saved_tensors
    dlogits = torch.ops.glmv.logp_bwd(logits, labels, lse, ent, g_logp, g_ent, logit_bias, *ctx.flags)
    return dlogits, None, None, None, None


_fwd.register_autograd(_backward, setup_context=save)

# ---- backend table -------------------------------------------------------------------------------------

register("token_loss", {"ref": always})

# ---- public function -----------------------------------------------------------------------------------


def logp(
    logits: Tensor,
    labels: Tensor,
    temperature: float = 1.0,
    *,
    logit_bias: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """logp and ent [M] float32 (float64 for float64 logits) of given logits; both are differentiable.

    logits [M, V] float; labels [M] int64 in [0, V) (values checked on the CPU alone); temperature > 0 divides
    the logits; logit_bias [V] float32 (float64 for float64 logits) is added before that: -1e4, say, for a
    token that cannot be sampled.

    Raises ValueError or TypeError for arguments that do not fit, BackendError if the backend cannot run them.
    """
    check.tensor("logp", "logits", logits, ("M", "V"), check.FLOAT)
    check_arguments("logp", logits, logits.shape[1], labels, logit_bias, temperature)
    chosen = resolve("token_loss", backend, logits.device, logits.dtype)
    _, of_label, ent = torch.ops.glmv.logp_fwd(logits, labels, logit_bias, 1 / temperature, chosen)
    return of_label, ent


def check_arguments(
    op: str, rows: Tensor, vocab: int, labels: Tensor, logit_bias: Tensor | None, temperature: float
) -> None:
    """What logp, linear_logp and grpo_loss have in common; `rows` [M, ...]: logits or hidden states."""
    check.that(op, "V", vocab > 0, "at least 1", vocab)
    check.tensor(op, "labels", labels, (f"M={len(rows)}",), (torch.int64,), rows.device)
    if logit_bias is not None:
        check.tensor(op, "logit_bias", logit_bias, (f"V={vocab}",), (wide(rows),), rows.device)
    check.that(op, "temperature", temperature > 0, "above 0", temperature)


def check_labels(op: str, labels: Tensor, vocab: int) -> None:
    """Runs inside the op, so that it also runs in compiled code."""
    if labels.device.type == "cpu" and labels.numel() > 0:
        low, high = int(labels.min()), int(labels.max())
        check.that(op, "labels", low >= 0, f"within 0 and V - 1 = {vocab - 1}", low)
        check.that(op, "labels", high < vocab, f"within 0 and V - 1 = {vocab - 1}", high)
