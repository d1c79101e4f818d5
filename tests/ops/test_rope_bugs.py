"""One test for each public bug of other rotary kernels that ours could have had."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import ops
from glmv.bench.cases import ROPE, Rope
from glmv.ops.rope import reference
from tests.numeric import ROPE_GRAD_ABS
from tests.ops.rope_oracle import assert_rounded_once, each_backend, make, truth


@each_backend
def test_vllm_42016_the_pairing_is_not_ignored(device: str, backend: str) -> None:
    """Also vllm 42765, 49290, 49323: right on text whose angles are small, garbled on images, no error."""
    q, k, *tables, _ = make(ROPE["glm-4.1v text"], device=device)
    for pairing in ("half", "adjacent"):
        assert_rounded_once(ops.rope(q, k, *tables, pairing, backend=backend)[1], truth(k, *tables, pairing))
    other = truth(k, *tables, "half")
    assert (truth(k, *tables, "adjacent") - other).abs().max() > 1


@each_backend
def test_megatron_5412_a_saved_activation_is_not_overwritten_silently(device: str, backend: str) -> None:
    x, k, *tables, pairing = make(ROPE["tiny text"], device=device)
    q = x.requires_grad_().exp()  # the backward pass of exp reads its output
    ops.rope_(q.detach(), k, *tables, pairing, backend=backend)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        q.sum().backward()


@each_backend
def test_unsloth_5001_inputs_stay_as_they_are(device: str, backend: str) -> None:
    q, k, *tables, pairing = make(ROPE["tiny text"], device=device)
    before, dy = q.clone(), torch.randn_like(q)
    grad_before = dy.clone()
    torch.autograd.grad(ops.rope(q.requires_grad_(), k, *tables, pairing, backend=backend)[0], q, dy)
    assert torch.equal(q, before)
    assert torch.equal(dy, grad_before)


@each_backend
def test_megatron_5317_tables_shorter_than_the_head(device: str, backend: str) -> None:
    q, k, pos, inv_freq, axis, pairing = make(ROPE["glm-4.5v text"], device=device)
    short = inv_freq[:4].contiguous(), axis[:4].contiguous()
    got = ops.rope(q, k, pos, *short, pairing, backend=backend)[0]
    assert_rounded_once(got, truth(q, pos, *short, pairing))


@each_backend
def test_liger_342_one_head(device: str, backend: str) -> None:
    """A transposed dimension of size 1 counts as contiguous; the kernel then wrote to a copy."""
    q, _, *tables, _ = make(Rope(1, 1, 8, (2, 1, 1), "half"), device=device)
    mine = q.transpose(0, 1).clone().transpose(0, 1)
    ops.rope_(mine, None, *tables, "half", backend=backend)
    assert_rounded_once(mine, truth(q, *tables, "half"))


@each_backend
def test_liger_464_segments_have_their_own_positions(device: str, backend: str) -> None:
    q, k, _, inv_freq, axis, pairing = make(ROPE["tiny text"], device=device)
    one = torch.cat((torch.arange(5), torch.arange(4), torch.arange(2))).expand(3, -1).to(device)
    packed = ops.rope(q, k, one, inv_freq, axis, pairing, backend=backend)[0]
    alone = ops.rope(q[5:9], None, one[:, 5:9], inv_freq, axis, pairing, backend=backend)[0]
    assert torch.equal(packed[5:9], alone)


@each_backend
def test_sglang_19636_keys_are_written_back(device: str, backend: str) -> None:
    q, k, *tables, pairing = make(ROPE["glm-4.1v text"], device=device)
    want = truth(k, *tables, pairing)
    ops.rope_(q, k, *tables, pairing, backend=backend)
    assert_rounded_once(k, want)


@each_backend
def test_mlx_vlm_1475_gradient_through_a_projection(device: str, backend: str) -> None:
    """A fused rope without a backward pass broke LoRA. q and k alias here: both are views of one product."""
    _, _, *tables, pairing = make(ROPE["tiny text"], device=device)
    x, weight = torch.randn(11, 6, device=device), torch.randn(6, 160, device=device)

    def gradient(rotate: Callable[..., Any], dtype: torch.dtype) -> Tensor:
        w = weight.to(dtype).requires_grad_()
        qk = (x.to(dtype) @ w).unflatten(-1, (5, 32))
        y_q, y_k = rotate(qk[:, :4], qk[:, 3:], *tables, pairing)
        return torch.autograd.grad((y_q[:, 2:] * y_k.sin()).sum(), w)[0]

    want = gradient(reference, torch.float64)
    got = gradient(partial(ops.rope, backend=backend), torch.float32)
    assert (got - want).abs().max() < ROPE_GRAD_ABS
