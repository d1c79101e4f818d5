"""What holds for pos_embed on any grid; needs hypothesis."""

import pytest
import torch

from glmv.ops import pos_embed
from tests.numeric import POS_EMBED_FP64

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

IMAGES = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(0, 6)), max_size=4)


@hypothesis.settings(max_examples=25)
@hypothesis.given(side=st.integers(1, 9), merge=st.integers(1, 2), images=IMAGES)
def test_weights_sum_to_one(side: int, merge: int, images: list[tuple[int, int, int]]) -> None:
    """A constant table gives that constant, and the table gradient sums to the sum of dout."""
    grid = torch.tensor([(t, h * merge, w * merge) for t, h, w in images], dtype=torch.int64).view(-1, 3)
    table = torch.full((side * side, 3), 1.5, dtype=torch.float64, requires_grad=True)
    out = pos_embed(table, grid, merge=merge)
    torch.testing.assert_close(out, torch.full_like(out, 1.5), rtol=0, atol=POS_EMBED_FP64)
    dout = torch.randn(out.shape, dtype=torch.float64)
    (dtable,) = torch.autograd.grad(out, table, dout)
    torch.testing.assert_close(dtable.sum(0), dout.sum(0), rtol=0, atol=POS_EMBED_FP64)


@hypothesis.settings(max_examples=25)
@hypothesis.given(order=st.permutations(range(4)), frames=st.integers(1, 3))
def test_images_do_not_see_each_other(order: list[int], frames: int) -> None:
    """A pack is its images one by one, in any order, bit for bit."""
    images = [(1, 4, 6), (frames, 2, 2), (1, 4, 6), (1, 8, 2)]
    table = torch.randn(49, 5)
    alone = [pos_embed(table, torch.tensor([images[i]])) for i in order]
    packed = pos_embed(table, torch.tensor([images[i] for i in order]))
    assert torch.equal(packed, torch.cat(alone))
