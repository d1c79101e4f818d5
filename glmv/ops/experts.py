"""Experts of a mixture: y_t = sum_k w_tk down_e (silu(gate_e x_t) * up_e x_t), e = experts[t, k].

A slot is one choice (t, k), numbered t K + k. Sorted by expert (stable, -1 last) they make R = T K rows:

    permute    xs[row] = x[token of the row]                           a plain copy
    gemm       rows of one expert lie together: one GEMM per expert    PyTorch's, in the dtype of x
    unpermute  y[t] = sum_k w[t, k] ys[row of (t, k)]                  fp32 sum in the order of k, one cast

Both `slot_of_row` [R] and `row_of_slot` [T, K] (-1: no expert) are kept, so that forward and backward only
gather: no atomics, the same bits every time. Rows past `ends[-1]` belong to no expert and are never read.
Kernels implement permute and unpermute; the GEMMs are PyTorch's under every backend, and ops as well, because
the host reads where each expert ends, which a compiled graph cannot hold.

Limits: no bias, SiLU only, no second derivative; x is copied once per choice and kept for the backward pass.
Sources: transformers' Glm4vMoeTextExperts (grouped form); MegaBlocks (arXiv 2211.15841).
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from glmv import check
from glmv.backend import always, register, resolve
from glmv.ops.router import Routing

WEIGHTS = (torch.float32, torch.float64)

# ---- reference -----------------------------------------------------------------------------------------


def sort_slots(experts: Tensor, num_experts: int) -> tuple[Tensor, Tensor, Tensor]:
    """slot_of_row [R], row_of_slot [T, K] (-1: no expert), ends [E] int32: first row after each expert."""
    none = experts < 0
    key, slot_of_row = torch.where(none, num_experts, experts).flatten().sort(stable=True)
    row_of_slot = slot_of_row.argsort().view(experts.shape).masked_fill(none, -1)  # inverse permutation
    each = torch.arange(num_experts, dtype=key.dtype, device=key.device)
    return slot_of_row, row_of_slot, torch.searchsorted(key, each, right=True, out_int32=True)


def reference_unpermute(ys: Tensor, weights: Tensor | None, row_of_slot: Tensor) -> Tensor:
    """[T, C] weighted sum over k of the rows of each token; without weights, the backward of permute."""
    wide = torch.promote_types(ys.dtype, torch.float32)
    total = ys.new_zeros(row_of_slot.shape[0], ys.shape[1], dtype=wide)
    for k, row in enumerate(row_of_slot.unbind(1)):
        part = ys.index_select(0, row.clamp(min=0)).to(wide)
        if weights is not None:
            part = part * weights[:, k, None].to(wide)
        total += torch.where(row.unsqueeze(1) >= 0, part, 0)
    return total.to(ys.dtype)


def reference_unpermute_bwd(
    dy: Tensor, ys: Tensor, weights: Tensor, slot_of_row: Tensor, row_of_slot: Tensor
) -> tuple[Tensor, Tensor]:
    """dys [R, C] and dweights [T, K], the dot product of dy[t] with the row of (t, k)."""
    wide = torch.promote_types(ys.dtype, torch.float32)
    dy_of_row = dy.index_select(0, slot_of_row // weights.shape[1]).to(wide)
    dys = dy_of_row * weights.flatten()[slot_of_row].unsqueeze(1).to(wide)
    dots = (dy_of_row * ys.to(wide)).sum(1)
    dweights = torch.where(row_of_slot >= 0, dots[row_of_slot.clamp(min=0)], 0)
    return dys.to(ys.dtype), dweights.to(weights.dtype)


# ---- ops + fakes ---------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::experts_permute_fwd", mutates_args=())
def _permute(x: Tensor, slot_of_row: Tensor, row_of_slot: Tensor, backend: str) -> Tensor:
    return x.index_select(0, slot_of_row // row_of_slot.shape[1])


@_permute.register_fake
def _(x: Tensor, slot_of_row: Tensor, *_: Any) -> Tensor:
    return x.new_empty(slot_of_row.shape[0], x.shape[1])


@torch.library.custom_op("glmv::experts_permute_bwd", mutates_args=())
def _permute_bwd(dxs: Tensor, row_of_slot: Tensor, backend: str) -> Tensor:
    return reference_unpermute(dxs, None, row_of_slot)


@_permute_bwd.register_fake
def _(dxs: Tensor, row_of_slot: Tensor, *_: Any) -> Tensor:
    return dxs.new_empty(row_of_slot.shape[0], dxs.shape[1])


@torch.library.custom_op("glmv::experts_unpermute_fwd", mutates_args=())
def _unpermute(ys: Tensor, weights: Tensor, slot_of_row: Tensor, row_of_slot: Tensor, backend: str) -> Tensor:
    return reference_unpermute(ys, weights, row_of_slot)


@_unpermute.register_fake
def _(ys: Tensor, weights: Tensor, *_: Any) -> Tensor:
    return ys.new_empty(weights.shape[0], ys.shape[1])


@torch.library.custom_op("glmv::experts_unpermute_bwd", mutates_args=())
def _unpermute_bwd(
    dy: Tensor, ys: Tensor, weights: Tensor, slot_of_row: Tensor, row_of_slot: Tensor, backend: str
) -> tuple[Tensor, Tensor]:
    return reference_unpermute_bwd(dy, ys, weights, slot_of_row, row_of_slot)


@_unpermute_bwd.register_fake
def _(dy: Tensor, ys: Tensor, weights: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return ys.new_empty(ys.shape), weights.new_empty(weights.shape)


@torch.library.custom_op("glmv::experts_gemm_fwd", mutates_args=())
def _gemm(xs: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """[R, N] = xs [R, C] times weight [E, N, C]^T of each row's expert."""
    out = xs.new_zeros(xs.shape[0], weight.shape[1])
    for expert, rows in _rows_of_experts(ends):
        torch.mm(xs[rows], weight[expert].T, out=out[rows])
    return out


@_gemm.register_fake
def _(xs: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return xs.new_empty(xs.shape[0], weight.shape[1])


@torch.library.custom_op("glmv::experts_gemm_dweight", mutates_args=())
def _gemm_dweight(dout: Tensor, xs: Tensor, ends: Tensor) -> Tensor:
    """[E, N, C]: dout^T xs over the rows of each expert, 0 for an expert without rows."""
    dweight = xs.new_zeros(ends.shape[0], dout.shape[1], xs.shape[1])
    for expert, rows in _rows_of_experts(ends):
        torch.mm(dout[rows].T, xs[rows], out=dweight[expert])
    return dweight


@_gemm_dweight.register_fake
def _(dout: Tensor, xs: Tensor, ends: Tensor) -> Tensor:
    return xs.new_empty(ends.shape[0], dout.shape[1], xs.shape[1])


def _rows_of_experts(ends: Tensor) -> list[tuple[int, slice]]:
    bounds = [0, *ends.tolist()]
    return [(e, slice(a, b)) for e, (a, b) in enumerate(pairwise(bounds)) if a < b]


# ---- autograd ------------------------------------------------------------------------------------------


def _save_permute(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, _, row_of_slot, ctx.backend = inputs
    ctx.save_for_backward(row_of_slot)


def _backward_permute(ctx: Any, dxs: Tensor) -> tuple[Tensor | None, ...]:
    return torch.ops.glmv.experts_permute_bwd(dxs, *ctx.saved_tensors, ctx.backend), None, None, None


def _save_unpermute(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.backend = inputs
    ctx.save_for_backward(*tensors)


def _backward_unpermute(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    dys, dweights = torch.ops.glmv.experts_unpermute_bwd(dy, *ctx.saved_tensors, ctx.backend)
    return dys, dweights, None, None, None


def _save_gemm(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_gemm(ctx: Any, dout: Tensor) -> tuple[Tensor | None, ...]:
    xs, weight, ends = ctx.saved_tensors
    gemm, gemm_dweight = torch.ops.glmv.experts_gemm_fwd, torch.ops.glmv.experts_gemm_dweight
    dxs = gemm(dout, weight.transpose(1, 2), ends) if ctx.needs_input_grad[0] else None
    return dxs, gemm_dweight(dout, xs, ends) if ctx.needs_input_grad[1] else None, None


_permute.register_autograd(_backward_permute, setup_context=_save_permute)
_unpermute.register_autograd(_backward_unpermute, setup_context=_save_unpermute)
_gemm.register_autograd(_backward_gemm, setup_context=_save_gemm)

# ---- backend table -------------------------------------------------------------------------------------

register("experts", {"ref": always})

# ---- public function -----------------------------------------------------------------------------------


def experts(x: Tensor, routing: Routing, gate_up: Tensor, down: Tensor, *, backend: str = "auto") -> Tensor:
    """The weighted sum of each token's experts, [T, C] in the dtype of x.

    Args:
        x: [T, C] float.
        routing: of the same T tokens; expert -1 is skipped. `counts` is not read: it may be a sum over ranks.
        gate_up: [E, 2 I, C] like x, gate rows first.
        down: [E, C, I] like x.

    Gradients go to x, routing.weights, gate_up and down. Raises ValueError or TypeError for arguments that do
    not fit (expert numbers are checked on the CPU alone), BackendError if the backend cannot run them.
    """
    check.tensor("experts", "x", x, ("T", "C"), check.FLOAT)
    tokens, width = x.shape
    check.tensor("experts", "gate_up", gate_up, ("E", "2I", f"C={width}"), (x.dtype,), x.device)
    number, inner = gate_up.shape[0], gate_up.shape[1] // 2
    check.that("experts", "gate_up", gate_up.shape[1] == 2 * inner, "[E, 2I, C] with an even 2I", gate_up)
    check.tensor("experts", "down", down, (f"E={number}", f"C={width}", f"I={inner}"), (x.dtype,), x.device)
    weights, chosen = routing.weights, routing.experts
    check.tensor("experts", "routing.weights", weights, (f"T={tokens}", "K"), WEIGHTS, x.device)
    top_k = weights.shape[1]
    check.tensor("experts", "routing.experts", chosen, (f"T={tokens}", f"K={top_k}"), check.INDEX, x.device)
    if chosen.device.type == "cpu" and chosen.numel() and not torch.compiler.is_compiling():
        low, high = int(chosen.min()), int(chosen.max())
        known = low >= -1 and high < number
        check.that("experts", "routing.experts", known, f"in [-1, E - 1 = {number - 1}]", (low, high))
    name = resolve("experts", backend, x.device, x.dtype)
    slot_of_row, row_of_slot, ends = sort_slots(chosen, number)
    xs = torch.ops.glmv.experts_permute_fwd(x, slot_of_row, row_of_slot, name)
    gate, up = torch.ops.glmv.experts_gemm_fwd(xs, gate_up, ends).chunk(2, 1)
    ys = torch.ops.glmv.experts_gemm_fwd(torch.nn.functional.silu(gate) * up, down, ends)
    y: Tensor = torch.ops.glmv.experts_unpermute_fwd(ys, weights, slot_of_row, row_of_slot, name)
    return y
