"""The norm, the rope tables and the order of patches, each against transformers or the formula."""

import pytest
import torch
from transformers.models.glm4v.modeling_glm4v import Glm4vRMSNorm
from transformers.vision_utils import get_vision_position_ids

from glmv.model import Glm4v, preset
from glmv.model.layers import RMSNorm
from glmv.model.vision import patch_positions
from tests.numeric import MODEL_NORM_RTOL, MODEL_NORM_SAME_BITS


def norms(dim: int, dtype: torch.dtype) -> tuple[RMSNorm, Glm4vRMSNorm]:
    ours, theirs = RMSNorm(dim, 1e-5), Glm4vRMSNorm(dim, 1e-5)
    weight = torch.randn(dim, generator=torch.Generator().manual_seed(1))
    for norm in (ours, theirs):
        norm.weight.data = weight.to(dtype)
    return ours, theirs


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Rows of very different sizes, one of zeros."""
    x = torch.randn(500, 96, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return (
        x * torch.logspace(-3, 3, 500, dtype=torch.float64)[:, None] * (torch.arange(500) > 0)[:, None]
    ).to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norm_rounds_twice_as_glm_does(dtype: torch.dtype) -> None:
    """Rounding once gives 74 % of equal bits; another order of the sum may turn a handful of ties."""
    ours, theirs = norms(96, dtype)
    x = rows(dtype)
    assert (ours(x) == theirs(x)).double().mean() >= MODEL_NORM_SAME_BITS


def test_norm_and_its_gradient_equal_transformers_in_fp32() -> None:
    grads = []
    for norm in norms(96, torch.float32):
        x = rows(torch.float32).view(5, 100, 96).requires_grad_()
        y = norm(x)
        y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(3)))
        grads.append((y.detach(), x.grad, norm.weight.grad))
    for got, want in zip(*grads, strict=True):
        scale = want.abs().amax(-1, keepdim=True)
        assert ((got - want).abs() <= MODEL_NORM_RTOL * scale).all()


def test_norm_gradcheck() -> None:
    norm = RMSNorm(6, 1e-5).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(6, dtype=torch.float64, requires_grad=True)

    def call(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(norm, {"weight": weight}, x)

    assert torch.autograd.gradcheck(call, (x, weight))
    assert torch.autograd.gradcheck(call, (x.transpose(0, 1), weight))


def test_norm_of_no_rows() -> None:
    x = torch.empty(0, 8, requires_grad=True)
    norm = RMSNorm(8, 1e-5)
    norm(x).sum().backward()
    assert torch.equal(norm.weight.grad, torch.zeros(8))


def test_rope_tables_are_the_formula_in_double_precision() -> None:
    with torch.device("meta"):
        towers = Glm4v(preset("glm-4.1v-9b")).to(torch.bfloat16).model
    text, text_axes = towers.language_model.rope.tables(torch.device("cpu"))
    exponents = torch.arange(0, 64, 2, dtype=torch.float64)
    assert torch.equal(text, (10000.0 ** (-exponents / 64)).float())
    assert text_axes.tolist() == [0] * 8 + [1] * 12 + [2] * 12
    vision, vision_axes = towers.visual.rope.tables(torch.device("cpu"))
    assert torch.equal(vision, (10000.0 ** (-exponents / 64)).float().repeat(2))
    assert vision_axes.tolist() == [0] * 32 + [1] * 32


def test_patches_stand_in_merge_block_order() -> None:
    grid = torch.tensor([[1, 4, 6], [3, 2, 4], [1, 8, 2]])
    assert torch.equal(patch_positions(grid, 2), get_vision_position_ids(grid, 2).T)
    by_hand = [[0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 2, 3, 2, 3]]
    assert patch_positions(torch.tensor([[1, 2, 4]]), 2).tolist() == by_hand
