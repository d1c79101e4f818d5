"""M-RoPE positions of one sequence: three axes (time, height, width) per token.

A text token stands at the same position on all axes. An image, and each frame pair of a video, starts where
the text before it ended: its tokens have (cur, cur + y, cur + x), and the text after it goes on at cur +
max(height, width), all in merged patches. Time does not move the positions of a video: the text between its
frames tells it.
"""

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Ints = npt.NDArray[np.int64]


def frame_sizes(grid: Tensor, merge: int = 2) -> Ints:
    """[F, 2] merged (height, width) of each image and frame pair of `grid` [N, 3] (t, h, w) in patches."""
    table = grid.numpy().astype(np.int64).reshape(-1, 3)
    sizes: Ints = np.repeat(table[:, 1:] // merge, table[:, 0], axis=0)
    return sizes


def rope_positions(modality: Tensor, grid: Tensor, merge: int = 2) -> tuple[Tensor, int]:
    """Positions [3, T] int32 of the tokens, and the position of the token that follows them.

    `modality` [T] int8 (0 text, 1 image, 2 video), `grid` [N, 3] int64 (t, h, w) in patches, in order of
    appearance. Raises ValueError unless the runs of visual tokens have the lengths that the grid asks for.
    """
    visual = modality.numpy() != 0
    sizes = frame_sizes(grid, merge)
    counts = sizes.prod(axis=1)
    starts = _run_starts(visual, counts)
    ends = starts + counts
    # A text token stands at its index less the visual tokens before it plus the room that their frames take.
    shift = np.cumsum(sizes.max(axis=1, initial=0) - counts)
    index = np.arange(len(visual))
    before = np.searchsorted(ends, index, side="right")  # frames that end at or before each token
    base = index + np.concatenate([[0], shift])[before]
    pos = np.broadcast_to(base, (3, len(base))).astype(np.int32)
    inside = index[visual] - np.repeat(starts, counts)
    width = np.repeat(sizes[:, 1], counts)
    origin = base[visual] - inside
    pos[:, visual] = np.stack([origin, origin + inside // width, origin + inside % width])
    return torch.from_numpy(pos), len(visual) + (int(shift[-1]) if len(shift) else 0)


def _run_starts(visual: npt.NDArray[np.bool_], counts: Ints) -> Ints:
    """The first token of each run of visual tokens; the runs must have the lengths `counts`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], visual, [False]]).astype(np.int8)))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not np.array_equal(lengths, counts):
        raise ValueError(
            f"the visual tokens stand in runs of {lengths.tolist()} but the grid asks for {counts.tolist()}"
        )
    return starts
