"""Attention over packed segments of any length ("varlen"), grouped-query, optionally bottom-right causal.

Segment s has the query rows cu_seqlens[s] : cu_seqlens[s+1] and, from cu_seqlens_k[s] on, n_k key rows, n_k =
seqused_k[s] or all up to the next bound. Query i of n_q sees, in head h (kv head h // (H / Hk)),

    keys j < n_k, and if causal only j <= i + n_k - n_q          (the last query sees the last key)
    o_i = sum_j p_ij v_j,   p_ij = exp(scale q_i.k_j - lse_i),   lse_i = log sum_j exp(scale q_i.k_j)
    dv = p' do,   ds_ij = p_ij (do_i.v_j - do_i.o_i + dlse_i),   dq = scale ds k,   dk = scale ds' q

A query that sees no key gives o = 0, lse = -inf. Rows beyond the last bound give the same and zero gradients,
whatever they hold; key rows beyond `seqused_k` enter no result, even NaN. Segments may be empty anywhere.

All sums are in fp32 at least. No second derivative. The reference has its own file, attention_reference.py.
Sources: FlashAttention-2 (arXiv 2307.08691); alignment as in flash-attn >= 2.1.
"""

from typing import Any

import torch
from torch import Tensor

from glmv import check
from glmv.backend import always, register, resolve
from glmv.ops.attention_reference import reference, reference_bwd, wide
from glmv.ops.attention_tiles import check_values, segments

# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::attention_fwd", mutates_args=())
def _fwd(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens: Tensor, cu_seqlens_k: Tensor | None,
    seqused_k: Tensor | None, causal: bool, scale: float, max_seqlen: int | None, backend: str,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if q.device.type == "cpu":  # inside the op, so that it also runs in compiled code
        check_values(len(q), len(k), cu_seqlens, cu_seqlens_k, seqused_k, max_seqlen)
    return reference(q, k, v, segments(cu_seqlens, cu_seqlens_k, seqused_k), causal, scale)


@_fwd.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[1], q.shape[0], dtype=wide(q))


@torch.library.custom_op("glmv::attention_bwd", mutates_args=())
def _bwd(
    dout: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    cu_seqlens: Tensor, cu_seqlens_k: Tensor | None, seqused_k: Tensor | None,
    causal: bool, scale: float, max_seqlen: int | None, backend: str,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    seg = segments(cu_seqlens, cu_seqlens_k, seqused_k)
    return reference_bwd(dout, dlse, q, k, v, out, lse, seg, causal, scale)


@_bwd.register_fake
def _(dout: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


# ---- autograd ------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs[:3], *output, *inputs[3:6])
    ctx.flags = inputs[6:]


def _backward(ctx: Any, dout: Tensor, dlse: Tensor) -> tuple[Tensor | None, ...]:
    grads = torch.ops.glmv.attention_bwd(dout, dlse, *ctx.saved_tensors, *ctx.flags)
    return (*grads, *[None] * 7)


_fwd.register_autograd(_backward, setup_context=_save)

# ---- backend table -------------------------------------------------------------------------------------

register("attention", {"ref": always})

# ---- public functions ----------------------------------------------------------------------------------


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    *,
    causal: bool,
    scale: float | None = None,
    max_seqlen: int | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    backend: str = "auto",
) -> Tensor:
    """Attention of packed segments: [T, H, D] in the dtype of q.

    Args:
        q: [T, H, D] float, any strides; k, v: [Tk, Hk, D] of the same dtype, H a multiple of Hk.
        cu_seqlens: [S+1] int32, bounds of the segments of q (and k): from 0 on, never falling, at most T.
        causal: query i of n_q sees keys up to i + n_k - n_q: the usual triangle for n_q = n_k.
        scale: factor of the scores, by default 1 / sqrt(D).
        max_seqlen: an upper bound of the query segments' lengths, if the host knows one; never needed.
        cu_seqlens_k: [S+1] int32, bounds of the segments of k and v if they differ, at most Tk.
        seqused_k: [S] int32, how many keys of each segment count, from its first on. A cache viewed as
            [B * room, Hk, D] is cu_seqlens_k = arange(B + 1) * room with seqused_k = keys written so far.

    Raises ValueError or TypeError for arguments that do not fit, BackendError if the backend cannot run them.
    The values of the bounds are checked on the CPU alone: on CUDA that would stop the host.
    """
    return attention_with_lse(
        q, k, v, cu_seqlens, causal=causal, scale=scale, max_seqlen=max_seqlen,
        cu_seqlens_k=cu_seqlens_k, seqused_k=seqused_k, backend=backend,
    )[0]  # fmt: skip


def attention_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens: Tensor,
    *,
    causal: bool,
    scale: float | None = None,
    max_seqlen: int | None = None,
    cu_seqlens_k: Tensor | None = None,
    seqused_k: Tensor | None = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """`attention`, and the log-sum-exp of each query's scores, [H, T] float32 (float64 for float64 inputs).

    Both are differentiable. With lse, attention over parts of the keys can be merged into attention over all.
    """
    op = "attention"
    check.tensor(op, "q", q, ("T", "H", "D"), check.FLOAT)
    tokens, heads, dim = q.shape
    check.that(op, "q", heads > 0 and dim > 0, "[T, H, D] with H, D > 0", q)
    keys = f"Tk={tokens}" if cu_seqlens_k is None else "Tk"
    check.tensor(op, "k", k, (keys, "Hk", f"D={dim}"), (q.dtype,), q.device)
    divides = k.shape[1] > 0 and heads % k.shape[1] == 0
    check.that(op, "k", divides, f"[Tk, Hk, D] with Hk a divisor of H={heads}", k)
    check.tensor(op, "v", v, (f"Tk={len(k)}", f"Hk={k.shape[1]}", f"D={dim}"), (q.dtype,), q.device)
    check.tensor(op, "cu_seqlens", cu_seqlens, ("S+1",), (torch.int32,), q.device)
    bounds = len(cu_seqlens)
    check.that(op, "cu_seqlens", bounds > 0, "[S+1] with at least one bound", cu_seqlens)
    if cu_seqlens_k is not None:
        check.tensor(op, "cu_seqlens_k", cu_seqlens_k, (f"S+1={bounds}",), (torch.int32,), q.device)
    if seqused_k is not None:
        check.tensor(op, "seqused_k", seqused_k, (f"S={bounds - 1}",), (torch.int32,), q.device)
    chosen = resolve(op, backend, q.device, q.dtype)
    scale = dim**-0.5 if scale is None else scale
    args = q, k, v, cu_seqlens, cu_seqlens_k, seqused_k, causal, scale, max_seqlen, chosen
    out, lse = torch.ops.glmv.attention_fwd(*args)
    return out, lse
