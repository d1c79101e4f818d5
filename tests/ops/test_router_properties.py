"""What holds for route on any logits; needs hypothesis."""

import math

import pytest
import torch

from glmv.ops import route

hypothesis = pytest.importorskip("hypothesis")
st = pytest.importorskip("hypothesis.strategies")

# Few values, so that ties are common, and every kind of extreme one.
VALUES = st.sampled_from([-math.inf, -200.0, -1.0, -0.0, 0.0, 0.5, 30.0, math.inf, math.nan])


@hypothesis.settings(max_examples=30)
@hypothesis.given(order=st.permutations(range(8)), top_k=st.integers(1, 8), seed=st.integers(0, 1000))
def test_renaming_experts_renames_the_choice(order: list[int], top_k: int, seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    logits, bias = torch.randn(7, 8, generator=g), 0.1 * torch.randn(8, generator=g)
    renamed = torch.tensor(order)
    want, got = route(logits, bias, top_k=top_k), route(logits[:, renamed], bias[renamed], top_k=top_k)
    assert torch.equal(renamed[got.experts.long()], want.experts.long())
    assert torch.equal(got.weights, want.weights)
    assert torch.equal(got.counts, want.counts[renamed])


@hypothesis.settings(max_examples=100)
@hypothesis.given(
    row=st.lists(VALUES, min_size=12, max_size=12),
    bias=st.lists(st.sampled_from([-3.0, 0.0, 7.0]), min_size=12, max_size=12),
    split=st.sampled_from([(1, 1), (3, 1), (3, 2), (4, 3), (12, 5)]),
    data=st.data(),
)
def test_any_row_gets_distinct_experts_of_the_best_groups(
    row: list[float], bias: list[float], split: tuple[int, int], data: st.DataObject
) -> None:
    groups, top_groups = split
    top_k = data.draw(st.integers(1, 12 // groups * top_groups))
    got = route(torch.tensor([row]), torch.tensor(bias), top_k=top_k, groups=groups, top_groups=top_groups)
    chosen = got.experts[0].tolist()
    assert len(set(chosen)) == top_k
    assert all(0 <= e < 12 for e in chosen)
    assert len({e // (12 // groups) for e in chosen}) <= top_groups
    assert [int(e in chosen) for e in range(12)] == got.counts.tolist()
    if not any(math.isnan(row[e]) for e in chosen):
        assert got.weights.isfinite().all()
