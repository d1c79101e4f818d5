"""How the reference attention turns many small ragged segments into a few batched calls.

A *layout* orders the packed rows so that a *tile*, some segments of similar length, is a plain [B, step, ...]
view: every segment padded to the longest of its tile. Where the segments already lie like that (images of one
size; a decoding cache), the layout is the packed tensor itself and nothing is copied.

Everything here is integer bookkeeping on the host: reading the bounds of CUDA tensors stops the host.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from glmv import check

# A tile ends where a segment is shorter than this share of its longest: lengths of 20 to 90 make 9 tiles.
SIMILAR = 0.85
# Scores of one tile, which the formula holds at once: 64 MB in fp32. A longer segment is a tile of its own.
MAX_SCORES = 1 << 24


class Segments(NamedTuple):
    """The S segments on the host, [S] int64 each: where they start in the packed rows, how long they are."""

    q_start: Tensor
    q_len: Tensor
    k_start: Tensor
    k_len: Tensor
    k_room: Tensor  # rows between the bounds of the keys, >= k_len


def segments(cu_seqlens: Tensor, cu_seqlens_k: Tensor | None, seqused_k: Tensor | None) -> Segments:
    q = cu_seqlens.to("cpu", torch.int64)
    k = q if cu_seqlens_k is None else cu_seqlens_k.to("cpu", torch.int64)
    room = k.diff()
    used = room if seqused_k is None else seqused_k.to("cpu", torch.int64)
    return Segments(q[:-1], q.diff(), k[:-1], used, room)


def check_values(
    num_q: int, num_k: int, cu: Tensor, cu_k: Tensor | None, used: Tensor | None, max_seqlen: int | None
) -> None:
    """Raise ValueError unless the bounds of `attention` fit `num_q` query and `num_k` key rows."""
    op = "attention"
    check.cu_seqlens(op, "cu_seqlens", cu, num_q if cu_k is not None else min(num_q, num_k), cu.device)
    if cu_k is not None:
        check.cu_seqlens(op, "cu_seqlens_k", cu_k, num_k, cu.device)
    if used is not None:
        room = (cu if cu_k is None else cu_k).diff()
        over = ((used < 0) | (used > room)).nonzero().flatten().tolist()
        expected = "at least 0 and at most the rows of each segment of k"
        check.that(op, "seqused_k", not over, expected, {i: int(used[i]) for i in over[:1]})
    if max_seqlen is not None:
        longest = max(cu.diff().tolist(), default=0)
        check.that(op, "max_seqlen", longest <= max_seqlen, f"None or at least {longest}", max_seqlen)


@dataclass(frozen=True)
class Tile:
    """B segments, padded to `q_step` query rows and `k_step` key rows each."""

    q0: int  # first row in the query layout
    k0: int  # first row in the key layout
    q_step: int
    k_step: int
    num_keys: int  # the first keys of each segment that any of the B looks at, <= k_step
    q_len: Tensor  # [B] int64
    k_len: Tensor  # [B] int64

    def queries(self, x: Tensor) -> Tensor:
        """x [N, heads, D] in the query layout -> view [B, heads, q_step, D]."""
        batch = len(self.q_len)
        rows = x[self.q0 : self.q0 + batch * self.q_step]
        return rows.view(batch, self.q_step, *x.shape[1:]).transpose(1, 2)

    def keys(self, x: Tensor) -> Tensor:
        """x [N, heads, D] in the key layout -> view [B, heads, num_keys, D]."""
        batch = len(self.k_len)
        rows = x[self.k0 : self.k0 + batch * self.k_step]
        return rows.view(batch, self.k_step, *x.shape[1:])[:, : self.num_keys].transpose(1, 2)

    def is_triangle(self) -> bool:
        """Causal is key <= query: so it is with as many keys as queries, the padding included."""
        return self.q_step == self.num_keys and torch.equal(self.q_len, self.k_len)

    def mask(self, causal: bool, like: Tensor) -> Tensor | None:
        """[B or 1, 1, q_step or 1, num_keys]: -inf for keys that the query must not see, else 0; None: all 0.

        A query that sees no key gets key 0, so that its softmax is finite; its layout counts it as padding.
        """
        last = (self.k_len - self.q_len if causal else self.k_len - 1).unsqueeze(1)
        if causal:
            last = last + torch.arange(self.q_step)
        if int(last.min()) >= self.num_keys - 1:
            return None
        if bool((last == last[:1]).all()):
            last = last[:1]
        hidden = torch.arange(self.num_keys) > last.clamp_(min=0)[:, None, :, None]
        return like.new_zeros(hidden.shape).masked_fill_(hidden.to(like.device), -math.inf)


@dataclass(frozen=True)
class Layout:
    """Where the T packed rows stand in the layout of the tiles; `index` None: there, in the same order."""

    num_rows: int  # N
    index: Tensor | None = None  # [N] packed row of each row; padding repeats the last row of its segment
    padding: Tensor | None = None  # [N] bool: rows that stand for no result
    inverse: Tensor | None = None  # [T] row of each packed row, N where it has none

    def pad(self, x: Tensor) -> Tensor:
        """x [T, ...] -> [N, ...]; padding holds rows of the same segment."""
        return x if self.index is None else x.index_select(0, self.index)

    def pad_with(self, x: Tensor, fill: float) -> Tensor:
        """x [T, ...] -> [N, ...]; padding is `fill`."""
        if self.padding is None:
            return x
        return self.pad(x).masked_fill_(self.padding.view(-1, *[1] * (x.dim() - 1)), fill)

    def unpad(self, tiles: list[Tensor], like: Tensor, fill: float = 0) -> Tensor:
        """The rows of all tiles, [N, ...] in parts -> [T, ...] as `like`, `fill` where there is no result."""
        beyond = 1 if self.inverse is not None else len(like) - self.num_rows
        if beyond or not tiles:
            tiles = [*tiles, like.new_full((1, *like.shape[1:]), fill).expand(beyond, *like.shape[1:])]
        rows = tiles[0] if len(tiles) == 1 else torch.cat(tiles)
        return rows if self.inverse is None else rows.index_select(0, self.inverse)


@dataclass(frozen=True)
class Plan:
    q: Layout
    k: Layout
    tiles: list[Tile]
    over_unused: bool  # tiles span key rows beyond `k_len`: masked, but 0 * NaN is NaN


def plan(seg: Segments, q: Tensor, k: Tensor, causal: bool, over_unused: bool) -> Plan:
    """Layouts and tiles for packed q [T, H, D] and k [Tk, Hk, D].

    `over_unused` allows views that span key rows that no query may see, where that saves a copy.
    """
    heads = q.shape[1]
    if _is_regular(seg, causal, over_unused):
        tiles = _regular_tiles(seg, heads)
        rows = [len(seg.q_len) * int(x[0]) for x in (seg.q_len, seg.k_room)]
        return Plan(Layout(rows[0]), Layout(rows[1]), tiles, not torch.equal(seg.k_len, seg.k_room))
    same = len(q) == len(k) and torch.equal(seg.k_start, seg.q_start) and torch.equal(seg.k_len, seg.q_len)
    live = ((seg.q_len > 0) & (seg.k_len > 0)).nonzero().squeeze(1)
    seg = Segments(*[x[live[seg.k_len[live].argsort(descending=True, stable=True)]] for x in seg])
    tiles = _sorted_tiles(seg, heads)
    none = torch.zeros_like(seg.q_len)
    blind = (seg.q_len - seg.k_len).clamp(min=0) if causal else none
    counts = torch.tensor([len(t.q_len) for t in tiles], dtype=torch.int64)
    q_width = torch.tensor([t.q_step for t in tiles], dtype=torch.int64).repeat_interleave(counts)
    q_layout = _gather(seg.q_start, blind, seg.q_len, q_width, q)
    if same:
        return Plan(q_layout, q_layout, tiles, False)
    k_width = torch.tensor([t.k_step for t in tiles], dtype=torch.int64).repeat_interleave(counts)
    return Plan(q_layout, _gather(seg.k_start, none, seg.k_len, k_width, k), tiles, False)


def _is_regular(seg: Segments, causal: bool, over_unused: bool) -> bool:
    """All query segments of one length, all key segments of one room, and every query sees a key."""
    if len(seg.q_len) == 0 or int(seg.q_len.min()) == 0 or int(seg.k_len.min()) == 0:
        return False
    even = bool((seg.q_len == seg.q_len[0]).all()) and bool((seg.k_room == seg.k_room[0]).all())
    blind = causal and bool((seg.k_len < seg.q_len).any())
    return even and not blind and (over_unused or torch.equal(seg.k_len, seg.k_room))


def _regular_tiles(seg: Segments, heads: int) -> list[Tile]:
    """As many segments a tile as MAX_SCORES allows."""
    q_step, k_step, longest = int(seg.q_len[0]), int(seg.k_room[0]), int(seg.k_len.max())
    count = max(1, MAX_SCORES // (heads * q_step * longest))
    tiles = []
    for first in range(0, len(seg.q_len), count):
        q_len, k_len = seg.q_len[first : first + count], seg.k_len[first : first + count]
        tiles.append(Tile(first * q_step, first * k_step, q_step, k_step, int(k_len.max()), q_len, k_len))
    return tiles


def _sorted_tiles(seg: Segments, heads: int) -> list[Tile]:
    """Cut the segments, which come by falling k_len, where one is much shorter than its tile."""
    q_lens, k_lens = seg.q_len.tolist(), seg.k_len.tolist()
    tiles: list[Tile] = []
    first = q0 = k0 = 0
    while first < len(k_lens):
        k_step, q_step, last = k_lens[first], q_lens[first], first + 1
        while last < len(k_lens) and k_lens[last] >= SIMILAR * k_step:
            q_longer = max(q_step, q_lens[last])
            if heads * q_longer * k_step * (last + 1 - first) > MAX_SCORES:
                break
            q_step, last = q_longer, last + 1
        part = slice(first, last)
        tiles.append(Tile(q0, k0, q_step, k_step, k_step, seg.q_len[part], seg.k_len[part]))
        q0, k0, first = q0 + (last - first) * q_step, k0 + (last - first) * k_step, last
    return tiles


def _gather(start: Tensor, blind: Tensor, length: Tensor, width: Tensor, x: Tensor) -> Layout:
    """Layout of segments padded to `width` rows each; their first `blind` rows count as padding."""
    segment = torch.arange(len(width)).repeat_interleave(width)
    row = torch.arange(len(segment))
    at = row - (width.cumsum(0) - width)[segment]
    index = start[segment] + torch.minimum(at, length[segment] - 1)
    valid = (at >= blind[segment]) & (at < length[segment])
    inverse = torch.full((len(x) + 1,), len(row))
    inverse[torch.where(valid, index, len(x))] = row  # padding goes to the extra slot
    return Layout(len(row), index.to(x.device), ~valid.to(x.device), inverse[:-1].to(x.device))
