"""Attention segment by segment, row by row and head by head: the truth that the op is held against."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pack:
    """Lengths of query segments; of key segments (None: the same); how many keys of each count (None: all).

    `beyond` rows follow the last segment, of queries and keys.
    """

    q: Sequence[int]
    k: Sequence[int] | None = None
    used: Sequence[int] | None = None
    beyond: int = 0

    def bounds(self) -> dict[str, Tensor]:
        """The arguments of `attention` that describe the segments."""
        named = {"cu_seqlens": cu(self.q)}
        if self.k is not None:
            named["cu_seqlens_k"] = cu(self.k)
        if self.used is not None:
            named["seqused_k"] = torch.tensor(self.used, dtype=torch.int32)
        return named

    def tensors(
        self, heads: int, kv_heads: int, dim: int, dtype: torch.dtype = torch.float64
    ) -> list[Tensor]:
        """q, k, v of normal draws that require grad."""
        rows = sum(self.q) + self.beyond
        keys = sum(self.q if self.k is None else self.k) + self.beyond
        sizes = (rows, heads), (keys, kv_heads), (keys, kv_heads)
        return [torch.randn(n, h, dim, dtype=dtype, requires_grad=True) for n, h in sizes]


def cu(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def truth(
    q: Tensor, k: Tensor, v: Tensor, pack: Pack, causal: bool, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """out [T, H, D], lse [H, T]; in fp64 unless the inputs are of lower precision; differentiable."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    out, lse = [q[:0] + k[:0].sum() + v[:0].sum()], []  # part of the graph even when there is no segment
    q_start = k_start = 0
    k_rooms = pack.q if pack.k is None else pack.k
    for s, (q_len, k_room) in enumerate(zip(pack.q, k_rooms, strict=True)):
        k_len = k_room if pack.used is None else pack.used[s]
        q_s, k_s, v_s = (
            q[q_start : q_start + q_len],
            k[k_start : k_start + k_len],
            v[k_start : k_start + k_len],
        )
        for name, x in zip((out, lse), _segment(q_s, k_s, v_s, causal, scale), strict=True):
            name.append(x)
        q_start, k_start = q_start + q_len, k_start + k_room
    beyond = len(q) - q_start
    out.append(q.new_zeros(beyond, *q.shape[1:]))
    lse.append(q.new_full((q.shape[1], beyond), -math.inf))
    return torch.cat(out), torch.cat(lse, 1)


def _segment(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Row by row and head by head; a row without a key gives 0 and -inf."""
    group = q.shape[1] // k.shape[1]
    out = [[q.new_zeros(q.shape[2]) for _ in range(q.shape[1])] for _ in q]
    lse = [[q.new_tensor(-math.inf) for _ in q] for _ in range(q.shape[1])]
    for i in range(len(q)):
        seen = max(0, min(len(k), i + 1 + len(k) - len(q))) if causal else len(k)
        for h in range(q.shape[1]) if seen else ():
            scores = scale * (k[:seen, h // group] @ q[i, h])
            lse[h][i] = scores.logsumexp(0)
            out[i][h] = scores.softmax(0) @ v[:seen, h // group]
    rows = torch.stack([torch.stack(x) for x in out]) if len(q) else q
    return rows, torch.stack([torch.stack(x) if x else q.new_zeros(0) for x in lse])
