"""Which rows share a micro-step, which rank runs it, and the packed batch itself.

    pack       lengths -> bins, none over the capacity
    balance    costs -> one equal share per rank
    plan       both: [rank][micro-step][index], with as many micro-steps on every rank
    row        a prompt and an answer -> one training sequence
    pack_rows  rows of one bin -> PackedBatch (pack_prompts, decode_batch: for sampling)

Ranks run their micro-steps in lockstep, so a different number of them would deadlock: shares differ in
cost, not in count. Everything here is deterministic.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from glmv import check
from glmv.data.types import PackedBatch, Prompt, Row

Costs = npt.NDArray[np.float64]
# Balancing stops after so many swaps, or when the next lowers the dearest share by less than this part.
SWAPS_PER_RANK, WORTH_A_SWAP = 4, 1e-4
PATCH_DIM = 1176  # 3 channels x 2 frames x 14 x 14 pixels


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """First-fit decreasing: indices of `lengths` in as few bins as that rule needs, none over `capacity`.

    Indices inside a bin are ascending. Raises ValueError for an item that is longer than a bin, or not
    positive.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    bad = np.flatnonzero((sizes < 1) | (sizes > capacity))
    if len(bad):
        check.that("pack", f"lengths[{bad[0]}]", False, f"in 1 .. capacity={capacity}", int(sizes[bad[0]]))
    room = np.full(len(sizes), capacity, dtype=np.int64)  # of every bin; at most one bin per item
    bins: list[list[int]] = []
    for i in np.argsort(-sizes, kind="stable").tolist():
        fits = int(
            (room[: len(bins) + 1] >= sizes[i]).argmax()
        )  # the bin after the last is empty: always fits
        if fits == len(bins):
            bins.append([])
        bins[fits].append(i)
        room[fits] -= sizes[i]
    return [sorted(members) for members in bins]


def balance(costs: Sequence[float], ranks: int) -> list[list[int]]:
    """Split the indices of `costs` into `ranks` shares of nearly equal cost.

    The number of indices differs by at most one between shares. The items are dealt out back and forth,
    dearest first; then the dearest share swaps single items with the others while that helps.
    """
    check.that("balance", "ranks", ranks >= 1, "at least 1", ranks)
    values = np.asarray(costs, dtype=np.float64)
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for k, i in enumerate(np.argsort(-values, kind="stable").tolist()):
        turn, rank = divmod(k, ranks)
        shares[ranks - 1 - rank if turn % 2 else rank].append(i)
    for _ in range(SWAPS_PER_RANK * ranks):
        if not _swap(shares, values):
            break
    return [sorted(share) for share in shares]


def plan(lengths: Sequence[int], costs: Sequence[float], ranks: int, capacity: int) -> list[list[list[int]]]:
    """Pack the rows into micro-steps and give every rank equally many: [rank][micro-step][index].

    `lengths` in tokens, `costs` in any unit that adds up (6 * parameters * length + attention, say). Bins
    are split until their number is a multiple of `ranks`; with fewer rows than ranks some micro-steps are
    empty. The dearest micro-step of a rank comes first, so that micro-steps that run at the same time are
    alike. Raises ValueError if a row is longer than `capacity` or the two lists differ in length.
    """
    check.that("plan", "costs", len(costs) == len(lengths), f"{len(lengths)} values, one per row", len(costs))
    bins = pack(lengths, capacity)
    _split_to_multiple(bins, costs, ranks)
    totals = [sum(costs[i] for i in members) for members in bins]
    shares = balance(totals, ranks)
    return [[bins[b] for b in sorted(share, key=lambda b: (-totals[b], b))] for share in shares]


def _split_to_multiple(bins: list[list[int]], costs: Sequence[float], ranks: int) -> None:
    """Split the dearest bins in two until the number of bins is a multiple of `ranks`."""
    while len(bins) % ranks:
        many = [b for b, members in enumerate(bins) if len(members) > 1]
        if not many:
            bins.append([])
            continue
        dearest = max(many, key=lambda b: sum(costs[i] for i in bins[b]))
        members = bins.pop(dearest)
        halves = balance([costs[i] for i in members], 2)
        bins += [[members[i] for i in half] for half in halves]


def _swap(shares: list[list[int]], costs: Costs) -> bool:
    """Make the one swap with the dearest share that leaves the two shares most equal; False if none helps."""
    totals = np.array([costs[share].sum() for share in shares])
    top = int(totals.argmax())
    best = totals[top] * (1 - WORTH_A_SWAP)
    found: tuple[int, int, int] | None = None
    for other, share in enumerate(shares):
        if other == top or not share:
            continue
        # Half the difference should move: for each item of `top`, look for that much less in `share`.
        wanted = costs[shares[top]] - (totals[top] - totals[other]) / 2
        order = np.argsort(costs[share], kind="stable")
        right = np.searchsorted(costs[share], wanted, sorter=order).clip(1, max(len(share) - 1, 1))
        for at in (right - 1, right.clip(max=len(share) - 1)):
            gain = costs[shares[top]] - costs[share][order[at]]
            dearer = np.maximum(totals[top] - gain, totals[other] + gain)
            i = int(dearer.argmin())
            if dearer[i] < best:
                best, found = dearer[i], (other, i, int(order[at[i]]))
    if found is not None:
        other, i, j = found
        shares[top][i], shares[other][j] = shares[other][j], shares[top][i]
    return found is not None


def row(
    prompt: Prompt,
    tokens: Tensor,
    keep: Tensor,
    logp_old: Tensor | None = None,
    adv: float = 0.0,
    weight: Tensor | None = None,
) -> Row:
    """Append an answer to a prompt: one training sequence, which shares the prompt's `patches`.

    `tokens` [n] int64 and `keep` [n] bool (True: a target of the loss) are the answer's; `logp_old` and
    `weight` [keep.sum()] float32. The answer is text, whatever its ids. Raises ValueError or TypeError for
    other shapes.
    """
    n = tokens.numel()
    check.tensor("row", "tokens", tokens, ("n",), (torch.int64,))
    check.tensor("row", "keep", keep, (f"n={n}",), (torch.bool,))
    kept = int(keep.sum())
    for name, value in (("logp_old", logp_old), ("weight", weight)):
        if value is not None:
            check.tensor("row", name, value, (f"keep.sum()={kept}",), (torch.float32,))
    pos = torch.arange(prompt.next_pos, prompt.next_pos + n, dtype=torch.int32).expand(3, n)
    return Row(
        sample_id=prompt.sample.id,
        tokens=torch.cat([prompt.tokens, tokens]),
        pos=torch.cat([prompt.pos, pos], dim=1),
        modality=torch.cat([prompt.modality, torch.zeros(n, dtype=torch.int8)]),
        patches=prompt.patches,
        grid=prompt.grid,
        keep=torch.cat([torch.zeros(prompt.tokens.numel(), dtype=torch.bool), keep]),
        logp_old=logp_old,
        adv=adv,
        weight=weight,
    )


def pack_rows(rows: Sequence[Row], merge: int = 2) -> PackedBatch:
    """Concatenate rows, in their order, to one micro-step.

    Rows that hold the same `patches` object show the same images: their features are computed once.
    Raises ValueError for no rows, a row whose first token is kept (nothing predicts it), visual tokens that
    do not match the patches, or `logp_old` / `weight` given for some rows only.
    """
    check.that("pack_rows", "rows", len(rows) > 0, "at least one row", len(rows))
    tokens = torch.cat([r.tokens for r in rows])
    lengths = [r.num_tokens for r in rows]
    bounds = _bounds(lengths)
    keep = torch.cat([r.keep for r in rows])
    first = keep[bounds[:-1]].nonzero()
    if len(first):
        raise ValueError(f"pack_rows: rows[{int(first[0])}] keeps its first token, which no token predicts")
    targets = keep.nonzero()[:, 0]
    modality = torch.cat([r.modality for r in rows])
    shown, visual_index = _shown(rows, modality, bounds, merge)
    grid = torch.cat([r.grid for r in shown])
    return PackedBatch(
        tokens=tokens,
        pos=torch.cat([r.pos for r in rows], dim=1),
        cu_seqlens=bounds.to(torch.int32),
        max_seqlen=max(lengths),
        modality=modality,
        patches=torch.cat([r.patches for r in shown]),
        grid=grid,
        vis_cu_seqlens=_bounds((grid[:, 1] * grid[:, 2]).repeat_interleave(grid[:, 0])).to(torch.int32),
        visual_index=visual_index,
        rows=targets - 1,
        labels=tokens[targets],
        loss_cu_seqlens=_bounds(keep)[bounds].to(torch.int32),
        logp_old=_per_target("logp_old", [r.logp_old for r in rows], len(targets)),
        adv=torch.tensor([r.adv for r in rows], dtype=torch.float32),
        weight=_per_target("weight", [r.weight for r in rows], len(targets)),
        sample_id=tuple(r.sample_id for r in rows),
    )


def pack_prompts(prompts: Sequence[Prompt], merge: int = 2) -> PackedBatch:
    """Concatenate prompts for sampling: `rows` [S] is the last hidden row of each, the labels are 0."""
    no_tokens, no_keep = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.bool)
    batch = pack_rows([row(p, no_tokens, no_keep) for p in prompts], merge)
    return replace(
        batch,
        rows=batch.cu_seqlens[1:].long() - 1,
        labels=torch.zeros(len(prompts), dtype=torch.int64),
        loss_cu_seqlens=torch.arange(len(prompts) + 1, dtype=torch.int32),
    )


def decode_batch(tokens: Tensor, pos: Tensor) -> PackedBatch:
    """One new token for each of B running sequences: `tokens` [B] int64, `pos` [B] int (on all axes)."""
    n, device = tokens.numel(), tokens.device
    check.tensor("decode_batch", "tokens", tokens, ("B",), (torch.int64,))
    check.tensor("decode_batch", "pos", pos, (f"B={n}",), check.INDEX, device)
    one_each = torch.arange(n + 1, dtype=torch.int32, device=device)
    return PackedBatch(
        tokens=tokens,
        pos=pos.to(torch.int32).expand(3, n),
        cu_seqlens=one_each,
        max_seqlen=1,
        modality=torch.zeros(n, dtype=torch.int8, device=device),
        patches=torch.empty(0, PATCH_DIM, device=device),
        grid=torch.empty(0, 3, dtype=torch.int64),
        vis_cu_seqlens=torch.zeros(1, dtype=torch.int32, device=device),
        visual_index=torch.empty(0, dtype=torch.int64, device=device),
        rows=one_each[:-1].long(),
        labels=torch.zeros_like(tokens),
        loss_cu_seqlens=one_each,
        logp_old=None,
        adv=torch.zeros(n, device=device),
        weight=None,
        sample_id=("",) * n,
    )


def _shown(rows: Sequence[Row], modality: Tensor, bounds: Tensor, merge: int) -> tuple[list[Row], Tensor]:
    """The first row of each distinct `patches` object, and the merged feature row of every visual token."""
    counts = _bounds(modality != 0)[bounds].diff().tolist()  # visual tokens of each row
    start: dict[int, int] = {}  # identity of the patches -> first feature row
    shown: list[Row] = []
    total = 0
    starts = []
    for i, (r, count) in enumerate(zip(rows, counts, strict=True)):
        if count * merge * merge != r.patches.shape[0]:
            raise ValueError(
                f"pack_rows: rows[{i}] has {count} visual tokens for {r.patches.shape[0]} patches, "
                f"of which {merge * merge} make one token"
            )
        if id(r.patches) not in start:
            start[id(r.patches)] = total
            shown.append(r)
            total += count
        starts.append(start[id(r.patches)])
    repeats = torch.tensor(counts)
    before = torch.tensor(starts) - _bounds(counts)[:-1]  # feature row minus number of the visual token
    return shown, torch.arange(int(repeats.sum())) + before.repeat_interleave(repeats)


def _bounds(lengths: Sequence[int] | Tensor) -> Tensor:
    """[S+1] int64 prefix sums, from 0."""
    sums = torch.as_tensor(lengths).cumsum(0, dtype=torch.int64)
    return torch.cat([torch.zeros(1, dtype=torch.int64), sums])


def _per_target(name: str, values: Sequence[Tensor | None], targets: int) -> Tensor | None:
    """The per-row values as one [M] tensor, or None if no row has any."""
    given = [v for v in values if v is not None]
    if not given:
        return None
    if len(given) < len(values):
        raise ValueError(
            f"pack_rows: {name} must be given for all rows or for none, got {len(given)} of {len(values)}"
        )
    joined = torch.cat(given)
    check.tensor("pack_rows", name, joined, (f"M={targets}",), (torch.float32,))
    return joined
