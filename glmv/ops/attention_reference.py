"""The reference of `attention`: any device and strides, fp64 too; the formulas are in attention.py.

Segments of similar length make a tile, one batched call (attention_tiles.py): on CPUs of the fused attention
that PyTorch has for them (no matrix of scores, one parallel loop); elsewhere, and where lse has a gradient,
of the formula. Deterministic; computes in fp32 (fp64 for fp64 inputs) and rounds once.
"""

import math

import torch
from torch import Tensor

from glmv.ops.attention_tiles import Layout, Segments, Tile, plan

# In a tile: q [B, H, n, D]; k, v [B, H, m, D]; lse [B, H, n].


def reference(
    q: Tensor, k: Tensor, v: Tensor, seg: Segments, causal: bool, scale: float, over_unused: bool = True
) -> tuple[Tensor, Tensor]:
    """out [T, H, D], lse [H, T]."""
    p, run = plan(seg, q, k, causal, over_unused), _fused if q.device.type == "cpu" else _formula
    qs, ks, vs = _padded(p.q, q), _padded(p.k, k), _padded(p.k, v)
    outs, lses = [], []
    for tile in p.tiles:
        q_t, k_t, v_t = tile.queries(qs), tile.keys(ks), tile.keys(vs)
        shape = q_t.shape
        if shape[2] == 1:  # one query a segment: the heads that share a key head are rows of one head
            q_t = q_t.reshape(shape[0], k.shape[1], -1, shape[3])
        else:
            k_t, v_t = _per_query_head(k_t, shape), _per_query_head(v_t, shape)
        out, lse = run(q_t, k_t, v_t, tile, causal, scale)
        outs.append(_rows(out.reshape(shape)))
        lses.append(_rows(lse.reshape(shape[:3])))
    packed = p.q.unpad(outs, qs)
    if p.over_unused and not bool(packed.isfinite().all()):  # NaN in unused rows, perhaps: copy around them
        return reference(q, k, v, seg, causal, scale, over_unused=False)
    return packed.to(q.dtype), p.q.unpad(lses, qs[..., 0], -math.inf).T.contiguous()


def reference_bwd(
    dout: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    seg: Segments, causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk, dv like q, k, v."""
    p = plan(seg, q, k, causal, over_unused=False)
    run = _fused_bwd if q.device.type == "cpu" and not bool(dlse.any()) else _formula_bwd
    qs, ks, vs = _padded(p.q, q), _padded(p.k, k), _padded(p.k, v)
    douts, outs, dlses = _padded(p.q, dout), _padded(p.q, out), p.q.pad(dlse.T)
    lses = p.q.pad_with(lse.T, math.inf)  # makes the probabilities of padding 0
    dqs: list[Tensor] = []
    dks: list[Tensor] = []
    dvs: list[Tensor] = []
    for tile in p.tiles:
        q_t = tile.queries(qs)
        k_t, v_t = (_per_query_head(tile.keys(x), q_t.shape) for x in (ks, vs))
        dout_t, dlse_t, out_t, lse_t = (tile.queries(x) for x in (douts, dlses, outs, lses))
        grads = run(dout_t, dlse_t, out_t, lse_t, q_t, k_t, v_t, tile, causal, scale)
        for to, x in zip((dqs, dks, dvs), grads, strict=True):
            to.append(_rows(x))
    dk, dv = (p.k.unpad(_sum_of_groups(x, ks), ks).to(q.dtype) for x in (dks, dvs))
    return p.q.unpad(dqs, qs).to(q.dtype), dk, dv


def _padded(layout: Layout, x: Tensor) -> Tensor:
    """x [T, heads, D] in the layout; of unit stride in D, without which the fused attention reads amiss."""
    x = layout.pad(x).to(wide(x))
    return x if x.stride(-1) == 1 else x.contiguous()


def wide(x: Tensor) -> torch.dtype:
    """The dtype of sums over values like x: at least fp32."""
    return torch.promote_types(x.dtype, torch.float32)


# ---- one tile ------------------------------------------------------------------------------------------


def _formula(
    q: Tensor, k: Tensor, v: Tensor, tile: Tile, causal: bool, scale: float
) -> tuple[Tensor, Tensor]:
    scores = _scores(q, k, tile, causal, scale)
    lse = scores.logsumexp(-1)
    return (scores - lse.unsqueeze(-1)).exp() @ v, lse


def _formula_bwd(
    dout: Tensor, dlse: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor,
    tile: Tile, causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    probs = (_scores(q, k, tile, causal, scale) - lse.unsqueeze(-1)).exp()
    delta = (dout * out).sum(-1) - dlse
    dscores = scale * probs * (dout @ v.mT - delta.unsqueeze(-1))
    return dscores @ k, dscores.mT @ q, probs.mT @ dout


def _scores(q: Tensor, k: Tensor, tile: Tile, causal: bool, scale: float) -> Tensor:
    scores, mask = scale * (q @ k.mT), tile.mask(causal, q)
    return scores if mask is None else scores + mask


def _fused(q: Tensor, k: Tensor, v: Tensor, tile: Tile, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    triangle = causal and tile.is_triangle()
    mask = None if triangle else tile.mask(causal, q)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, triangle, attn_mask=mask, scale=scale
    )
    return out, lse


def _fused_bwd(
    dout: Tensor, _: Tensor, out: Tensor, lse: Tensor, q: Tensor, k: Tensor, v: Tensor,
    tile: Tile, causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    triangle = causal and tile.is_triangle()
    mask = None if triangle else tile.mask(causal, q)
    dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        dout, q, k, v, out, lse, 0.0, triangle, attn_mask=mask, scale=scale
    )
    return dq, dk, dv


def _per_query_head(k: Tensor, shape: torch.Size) -> Tensor:
    """k [B, Hk, m, D] -> [B, H, m, D], each head repeated for the query heads that share it; `shape` of q."""
    return k.unsqueeze(2).expand(-1, -1, shape[1] // k.shape[1], -1, -1).flatten(1, 2)


def _sum_of_groups(dks: list[Tensor], k: Tensor) -> list[Tensor]:
    """The gradient of what `_per_query_head` repeated: [N, H, D] in parts -> [N, Hk, D] in one."""
    if not dks or dks[0].shape[1] == k.shape[1]:
        return dks
    dk = torch.cat(dks) if len(dks) > 1 else dks[0]
    return [dk.view(len(dk), k.shape[1], -1, k.shape[2]).sum(2)]


def _rows(x: Tensor) -> Tensor:
    """[B, heads, n, ...] -> [B * n, heads, ...]."""
    return x.transpose(1, 2).flatten(0, 1)
