"""M-RoPE positions against transformers' get_rope_index and numbers written by hand."""

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from transformers import Glm4vModel

from glmv.data.positions import rope_positions

TEXT, IMAGE, VIDEO = 0, 1, 2


def sequence(*parts):
    """Modality and grid of parts: an int is that much text, (kind, t, h, w) an image or a clip."""
    modality, grid = [], []
    for part in parts:
        if isinstance(part, int):
            modality += [TEXT] * part
            continue
        kind, t, h, w = part
        grid.append((t, h, w))
        for frame in range(t):  # three tokens of text between the frames of a clip: end, second, begin
            modality += [TEXT] * (3 if frame else 0) + [kind] * (h * w // 4)
    return torch.tensor(modality, dtype=torch.int8), torch.tensor(grid, dtype=torch.int64).reshape(-1, 3)


def hf_positions(modality, grid, parts):
    model = SimpleNamespace(config=SimpleNamespace(vision_config=SimpleNamespace(spatial_merge_size=2)))
    model.get_vision_position_ids = partial(Glm4vModel.get_vision_position_ids, model)
    kinds = torch.tensor([p[0] for p in parts if not isinstance(p, int)])
    images, videos = (grid[kinds == k] if len(grid) else grid for k in (IMAGE, VIDEO))
    types = modality[None].int()
    pos, delta = Glm4vModel.get_rope_index(
        model, torch.zeros_like(types, dtype=torch.int64), types, images, videos if len(videos) else None
    )
    return pos[:, 0], int(delta)


@pytest.mark.parametrize(
    "parts",
    [
        [7],
        [3, (IMAGE, 1, 6, 6), 4],
        [3, (IMAGE, 1, 4, 10), 2, (IMAGE, 1, 10, 4), 2, (IMAGE, 1, 2, 2), 5],
        [4, (VIDEO, 3, 4, 6), 4],
        [4, (VIDEO, 2, 4, 4), 2, (VIDEO, 1, 8, 2), 3],
        [2, (IMAGE, 1, 6, 4), 3, (VIDEO, 4, 4, 4), 5, (IMAGE, 1, 2, 8), 1],
        [(IMAGE, 1, 4, 4), 3],
        [3, (IMAGE, 1, 4, 8)],
    ],
)
def test_equal_to_transformers(parts):
    modality, grid = sequence(*parts)
    pos, next_pos = rope_positions(modality, grid)
    expected, delta = hf_positions(modality, grid, parts)
    assert pos.dtype == torch.int32
    assert torch.equal(pos.long(), expected)
    assert next_pos == delta + len(modality)


def test_by_hand():
    """Two words, an image of 2 x 3 merged patches, one word."""
    pos, next_pos = rope_positions(*sequence(2, (IMAGE, 1, 4, 6), 1))
    assert pos.tolist() == [
        [0, 1, 2, 2, 2, 2, 2, 2, 5],
        [0, 1, 2, 2, 2, 3, 3, 3, 5],
        [0, 1, 2, 3, 4, 2, 3, 4, 5],
    ]
    assert next_pos == 6


def test_frames_start_where_their_text_ends():
    """Each frame of 2 x 2 begins at its own position on all axes: 3 + 2 + 3 text tokens = 8."""
    pos, next_pos = rope_positions(*sequence(3, (VIDEO, 2, 4, 4), 1))
    assert pos[:, 3:7].tolist() == [[3, 3, 3, 3], [3, 3, 4, 4], [3, 4, 3, 4]]
    assert pos[:, 10:14].tolist() == [[8, 8, 8, 8], [8, 8, 9, 9], [8, 9, 8, 9]]
    assert next_pos == 11


def test_other_merge_size():
    pos, next_pos = rope_positions(
        torch.tensor([0, 1, 1, 1, 1, 0], dtype=torch.int8), torch.tensor([[1, 2, 2]]), 1
    )
    assert pos.tolist() == [[0, 1, 1, 1, 1, 3], [0, 1, 1, 2, 2, 3], [0, 1, 2, 1, 2, 3]]
    assert next_pos == 4


@pytest.mark.parametrize(
    ("modality", "grid", "runs"),
    [
        ([0, 1, 1, 0], [[1, 2, 2]], r"\[2\] but the grid asks for \[1\]"),
        ([0, 1, 0], [], r"\[1\] but the grid asks for \[\]"),
        ([0, 0], [[1, 2, 2]], r"\[\] but the grid asks for \[1\]"),
        ([0, 2, 2, 0], [[2, 2, 2]], r"\[2\] but the grid asks for \[1, 1\]"),
    ],
)
def test_tokens_that_do_not_match_the_grid(modality, grid, runs):
    grid = torch.tensor(grid, dtype=torch.int64).reshape(-1, 3)
    with pytest.raises(ValueError, match=f"stand in runs of {runs}"):
        rope_positions(torch.tensor(modality, dtype=torch.int8), grid)
