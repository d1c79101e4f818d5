"""logp and entropy from hidden states: logits = hidden weight' without an [M, V] tensor.

The logits of a chunk of rows are made, reduced by `logp_rows`, and dropped. The backward pass makes them
again and overwrites them with dlogits, then dhidden = dlogits weight and dweight += dlogits' hidden: four
GEMMs of 2 M V C in all. GEMMs run in the dtype of the inputs with fp32 sums; the gradient of the weight is
added up over chunks in fp32 and rounded once (adding in bf16 hurts training: Liger-Kernel 1323).
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from glmv import check
from glmv.backend import resolve
from glmv.ops.token_loss import (
    check_arguments,
    check_labels,
    empty_rows,
    logp_rows,
    logp_rows_bwd_,
    save,
    wide,
)

CHUNK_MB = 128.0  # few launches at any vocabulary, little next to the weight and its gradient

# ---- reference -----------------------------------------------------------------------------------------


def linear_rows(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float,
    chunk_rows: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """lse, logp, ent [M] from hidden [M, C] and weight [V, C]."""
    out = empty_rows(hidden)
    for rows in chunks(len(hidden), chunk_rows):
        logits = hidden[rows] @ weight.T
        for to, x in zip(out, logp_rows(logits, labels[rows], logit_bias, inv_temperature), strict=True):
            to[rows] = x
    return out


def chunks(num_rows: int, chunk_rows: int) -> Iterator[slice]:
    return (slice(i, min(i + chunk_rows, num_rows)) for i in range(0, num_rows, chunk_rows))


class LinearGrads:
    """dhidden and dweight of logits = hidden weight', chunk by chunk; one that is not wanted has size 0."""

    def __init__(self, hidden: Tensor, weight: Tensor, with_hidden: bool, with_weight: bool) -> None:
        self._hidden, self._weight = hidden, weight
        self.wanted = with_hidden or with_weight
        self._with_hidden, self._with_weight = with_hidden, with_weight
        self._dhidden = torch.empty_like(hidden) if with_hidden else hidden.new_empty(0)
        self._dweight = weight.new_zeros(weight.shape if with_weight else 0, dtype=wide(weight))

    def add(self, rows: slice, dlogits: Tensor) -> None:
        if self._with_hidden:
            self._dhidden[rows] = dlogits @ self._weight
        if self._with_weight and dlogits.dtype == self._dweight.dtype:
            self._dweight.addmm_(dlogits.T, self._hidden[rows])
        elif self._with_weight:
            self._dweight.add_(dlogits.T @ self._hidden[rows])

    def result(self) -> tuple[Tensor, Tensor]:
        return self._dhidden, self._dweight.to(self._weight.dtype)


# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::linear_logp_fwd", mutates_args=())
def _fwd(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, inv_temperature: float,
    chunk_rows: int, backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    check_labels("linear_logp", labels, len(weight))
    return linear_rows(hidden, weight, labels, logit_bias, inv_temperature, chunk_rows)


_fwd.register_fake(empty_rows)


@torch.library.custom_op("glmv::linear_logp_bwd", mutates_args=())
def _bwd(
    hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, lse: Tensor, ent: Tensor,
    g_logp: Tensor, g_ent: Tensor, with_hidden: bool, with_weight: bool, inv_temperature: float,
    chunk_rows: int, backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    grads = LinearGrads(hidden, weight, with_hidden, with_weight)
    for rows in chunks(len(hidden), chunk_rows):
        logits = hidden[rows] @ weight.T
        per_row = labels[rows], lse[rows], ent[rows], g_logp[rows], g_ent[rows]
        logp_rows_bwd_(logits, *per_row, logit_bias, inv_temperature)
        grads.add(rows, logits)
    return grads.result()


@_bwd.register_fake
def _(hidden: Tensor, weight: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    with_hidden, with_weight = args[6:8]
    return empty_grads(hidden, weight, with_hidden, with_weight)


def empty_grads(
    hidden: Tensor, weight: Tensor, with_hidden: bool, with_weight: bool
) -> tuple[Tensor, Tensor]:
    """The shapes of `LinearGrads.result`."""
    return hidden.new_empty(hidden.shape if with_hidden else 0), weight.new_empty(
        weight.shape if with_weight else 0
    )


# ---- autograd ------------------------------------------------------------------------------------------


def _backward(ctx: Any, _: Tensor, g_logp: Tensor, g_ent: Tensor) -> tuple[Tensor | None, ...]:
    wanted = ctx.needs_input_grad[:2]
    dhidden, dweight = torch.ops.glmv.linear_logp_bwd(*ctx.saved_tensors, g_logp, g_ent, *wanted, *ctx.flags)
    return dhidden if wanted[0] else None, dweight if wanted[1] else None, None, None, None, None, None


_fwd.register_autograd(_backward, setup_context=save)

# ---- backend table: that of token_loss -----------------------------------------------------------------

# ---- public function -----------------------------------------------------------------------------------


def linear_logp(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    temperature: float = 1.0,
    *,
    logit_bias: Tensor | None = None,
    chunk_mb: float | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`logp` of logits = hidden weight', without an [M, V] tensor: logp and ent [M], both differentiable.

    Args:
        hidden: [M, C] float, the rows that predict a label; weight: [V, C] of the same dtype.
        labels: [M] int64 in [0, V) (values checked on the CPU alone).
        temperature: > 0, divides the logits.
        logit_bias: [V] float32 (float64 with float64), added before that; gets no gradient.
        chunk_mb: MiB of one chunk of logits in fp32, 128 by default; a few such tensors live at a time.

    Returns float32 (float64 for float64 inputs). A frozen hidden or weight costs no GEMM.
    Raises ValueError or TypeError for arguments that do not fit, BackendError if the backend cannot run them.
    """
    check_linear("linear_logp", hidden, weight, labels, logit_bias, temperature)
    chosen = resolve("token_loss", backend, hidden.device, hidden.dtype)
    rows = rows_per_chunk("linear_logp", len(weight), chunk_mb)
    _, logp, ent = torch.ops.glmv.linear_logp_fwd(
        hidden, weight, labels, logit_bias, 1 / temperature, rows, chosen
    )
    return logp, ent


def check_linear(
    op: str, hidden: Tensor, weight: Tensor, labels: Tensor, logit_bias: Tensor | None, temperature: float
) -> None:
    """The arguments that linear_logp and grpo_loss have in common."""
    check.tensor(op, "hidden", hidden, ("M", "C"), check.FLOAT)
    check.tensor(op, "weight", weight, ("V", f"C={hidden.shape[1]}"), (hidden.dtype,), hidden.device)
    check_arguments(op, hidden, len(weight), labels, logit_bias, temperature)


def rows_per_chunk(op: str, vocab: int, chunk_mb: float | None) -> int:
    mb = CHUNK_MB if chunk_mb is None else chunk_mb
    check.that(op, "chunk_mb", mb > 0, "above 0", mb)
    return max(1, int(mb * 2**20 / (4 * vocab)))
