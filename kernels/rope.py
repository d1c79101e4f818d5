# mypy: ignore-errors
# (The kernels are written in Triton's language, which has no Python types.)
"""Rotary embedding, forward and backward, q and k in one launch (the maths: glmv/ops/rope.py).

A program turns a tile of BLOCK_T tokens x BLOCK_H heads of q or of k. It takes the sine and cosine of its
tokens once for all heads of the tile. Pairs that are adjacent in memory are loaded as one contiguous run and
split in registers: two loads of stride 2 would not be vectorised. In place (y is x) the dimensions that pass
through are not touched.
"""

from dataclasses import dataclass

import triton
import triton.language as tl
from torch import Tensor

from ._lib import next_power_of_2, sincos


@dataclass(frozen=True)
class Config:
    """Tile and launch shape of one call."""

    block_t: int  # tokens
    block_h: int  # heads
    num_warps: int


def pick_config(num_heads: int, rotary_dim: int) -> Config:
    """Tiles of about 4096 rotated elements: four 16-byte loads (bf16) in flight for each of 128 threads."""
    block_h = min(next_power_of_2(num_heads), 16)
    block_t = max(4096 // (block_h * next_power_of_2(rotary_dim)), 1)
    return Config(block_t, block_h, num_warps=4)


@triton.jit
def _angles(
    POS, INV_FREQ, AXIS, t, in_t, stride_pa, stride_pt, stride_f, stride_a,
    LANES: tl.constexpr, BLOCK_L: tl.constexpr,
):  # fmt: skip
    """(sin, cos) [BLOCK_T, BLOCK_L] of the tokens `t`."""
    lane = tl.arange(0, BLOCK_L)
    in_l = lane < LANES
    freq = tl.load(INV_FREQ + lane * stride_f, mask=in_l, other=0.0)
    axis = tl.load(AXIS + lane * stride_a, mask=in_l, other=0).to(tl.int64)
    mask = in_t[:, None] & in_l[None, :]
    pos = tl.load(POS + axis[None, :] * stride_pa + t[:, None] * stride_pt, mask=mask, other=0)
    return sincos(pos.to(tl.float32) * freq[None, :])


@triton.jit
def _turn(
    X, Y, stride_xt, stride_xh, stride_yt, stride_yh, num_heads, block, t, in_t, sin, cos,
    D: tl.constexpr, LANES: tl.constexpr, ADJACENT: tl.constexpr, COPY_TAIL: tl.constexpr,
    BLOCK_L: tl.constexpr, BLOCK_TAIL: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Y = X rotated, for one tile of heads."""
    h = block.to(tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H)
    in_th = (in_t[:, None] & (h < num_heads)[None, :])[:, :, None]
    x = X + (t[:, None] * stride_xt + h[None, :] * stride_xh)[:, :, None]
    y = Y + (t[:, None] * stride_yt + h[None, :] * stride_yh)[:, :, None]
    sin, cos = sin[:, None, :], cos[:, None, :]
    if ADJACENT:
        run = tl.arange(0, 2 * BLOCK_L)[None, None, :]
        mask = in_th & (run < 2 * LANES)
        pairs = tl.load(x + run, mask=mask).to(tl.float32)
        a, b = tl.split(tl.reshape(pairs, (pairs.shape[0], BLOCK_H, BLOCK_L, 2)))
        pairs = tl.join(a * cos - b * sin, b * cos + a * sin)
        tl.store(
            y + run,
            tl.reshape(pairs, (pairs.shape[0], BLOCK_H, 2 * BLOCK_L)).to(Y.dtype.element_ty),
            mask=mask,
        )
    else:
        lane = tl.arange(0, BLOCK_L)[None, None, :]
        mask = in_th & (lane < LANES)
        a = tl.load(x + lane, mask=mask).to(tl.float32)
        b = tl.load(x + lane + LANES, mask=mask).to(tl.float32)
        tl.store(y + lane, (a * cos - b * sin).to(Y.dtype.element_ty), mask=mask)
        tl.store(y + lane + LANES, (b * cos + a * sin).to(Y.dtype.element_ty), mask=mask)
    if COPY_TAIL:
        tail = 2 * LANES + tl.arange(0, BLOCK_TAIL)[None, None, :]
        mask = in_th & (tail < D)
        tl.store(y + tail, tl.load(x + tail, mask=mask), mask=mask)


# The batch must not choose the variant: a kernel compiled anew for some lengths stalls the training loop.
@triton.jit(do_not_specialize=["num_tokens", "stride_pa"])
def rope_kernel(
    Q, K, Y_Q, Y_K, POS, INV_FREQ, AXIS, num_tokens, num_heads, num_kv_heads,
    stride_qt, stride_qh, stride_kt, stride_kh, stride_yqt, stride_yqh, stride_ykt, stride_ykh,
    stride_pa, stride_pt, stride_f, stride_a,
    D: tl.constexpr, LANES: tl.constexpr, ADJACENT: tl.constexpr, CONJUGATE: tl.constexpr,
    COPY_TAIL: tl.constexpr, BLOCK_L: tl.constexpr, BLOCK_TAIL: tl.constexpr, BLOCK_T: tl.constexpr,
    BLOCK_H: tl.constexpr,
):  # fmt: skip
    """Grid: (blocks of tokens, blocks of q heads, then of k heads). Offsets are int64."""
    t = tl.program_id(0).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)
    in_t = t < num_tokens
    sin, cos = _angles(POS, INV_FREQ, AXIS, t, in_t, stride_pa, stride_pt, stride_f, stride_a, LANES, BLOCK_L)
    if CONJUGATE:
        sin = -sin
    block = tl.program_id(1)
    q_blocks = tl.cdiv(num_heads, BLOCK_H)
    if block < q_blocks:
        _turn(Q, Y_Q, stride_qt, stride_qh, stride_yqt, stride_yqh, num_heads, block, t, in_t, sin, cos,
              D, LANES, ADJACENT, COPY_TAIL, BLOCK_L, BLOCK_TAIL, BLOCK_H)  # fmt: skip
    else:
        _turn(K, Y_K, stride_kt, stride_kh, stride_ykt, stride_ykh, num_kv_heads, block - q_blocks, t, in_t,
              sin, cos, D, LANES, ADJACENT, COPY_TAIL, BLOCK_L, BLOCK_TAIL, BLOCK_H)  # fmt: skip


def constants(
    dim: int, lanes: int, adjacent: bool, conjugate: bool, in_place: bool, config: Config
) -> dict[str, int]:
    """The compile-time arguments of `rope_kernel`: sizes of the model and of the tile, never of the batch."""
    return {
        "D": dim,
        "LANES": lanes,
        "ADJACENT": adjacent,
        "CONJUGATE": conjugate,
        "COPY_TAIL": not in_place and 2 * lanes < dim,
        "BLOCK_L": next_power_of_2(lanes),
        "BLOCK_TAIL": next_power_of_2(dim - 2 * lanes),
        "BLOCK_T": config.block_t,
        "BLOCK_H": config.block_h,
    }


def launch(
    q: Tensor,
    k: Tensor,
    y_q: Tensor,
    y_k: Tensor,
    pos: Tensor,
    inv_freq: Tensor,
    axis_of_lane: Tensor,
    adjacent: bool,
    conjugate: bool,
) -> None:
    """Write the rotation of q [T, H, D] and k [T, Hk, D] to y_q and y_k; y_q is q means in place.

    The last dimension of q, k, y_q and y_k has stride 1. Hk = 0 is a missing k.
    """
    (tokens, heads, dim), kv_heads, lanes = q.shape, k.shape[1], inv_freq.shape[0]
    if tokens == 0 or heads + kv_heads == 0:
        return
    config = pick_config(max(heads, kv_heads), 2 * lanes)
    grid = (
        triton.cdiv(tokens, config.block_t),
        triton.cdiv(heads, config.block_h) + triton.cdiv(kv_heads, config.block_h),
    )
    strides = [s for x in (q, k, y_q, y_k) for s in x.stride()[:2]]
    rope_kernel[grid](
        q, k, y_q, y_k, pos, inv_freq, axis_of_lane, tokens, heads, kv_heads,
        *strides, *pos.stride(), inv_freq.stride(0), axis_of_lane.stride(0),
        **constants(dim, lanes, adjacent, conjugate, y_q is q, config), num_warps=config.num_warps,
    )  # fmt: skip
