"""attention against a loop over segments, rows and heads in fp64, and against PyTorch's own attention."""

import importlib
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from glmv import ops
from tests.numeric import (
    ATTENTION_FP32,
    ATTENTION_FP64,
    ATTENTION_GRAD_FP32,
    assert_error_relative,
)
from tests.ops.attention_oracle import Pack, cu, truth

PACKS = {
    "one length": Pack([4, 4, 4]),
    "ragged": Pack([3, 7, 1, 5], beyond=2),
    "empty first, middle, last": Pack([0, 3, 0, 0, 6, 0]),
    "all empty": Pack([0, 0], beyond=1),
    "more queries than keys": Pack([5, 2, 6], [3, 2, 1]),
    "more keys than queries": Pack([2, 1, 3], [5, 1, 9], beyond=1),
    "no keys at all": Pack([2, 3], [0, 4]),
    "cache, one query each": Pack([1, 1, 1], [6, 6, 6], [4, 6, 1]),
    "cache, some unused": Pack([1, 1, 1], [6, 6, 6], [4, 0, 1], beyond=2),
    "cache, prompts": Pack([3, 1, 4], [6, 6, 6], [3, 1, 4]),
    "keys like the queries, then unused ones": Pack([2, 0], [2, 3], [2, 0]),
    "single token": Pack([1]),
}
HEADS = [(4, 1), (3, 3), (4, 2)]


def run(q: Tensor, k: Tensor, v: Tensor, pack: Pack, causal: bool, **options: Any) -> tuple[Tensor, Tensor]:
    return ops.attention_with_lse(q, k, v, **pack.bounds(), causal=causal, **options)


def errors(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> list[float]:
    """Largest difference of each pair; equal infinities differ by nothing."""
    return [
        0.0 if x.numel() == 0 else torch.where(x == y, 0, x - y).abs().max().item()
        for x, y in zip(got, want, strict=True)
    ]


# ---- 1. the reference ----------------------------------------------------------------------------------


@pytest.fixture(params=["fused", "formula"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """On a CPU the reference takes PyTorch's fused attention, elsewhere the formula: here both are run."""
    if request.param == "formula":
        module = importlib.import_module("glmv.ops.attention_reference")
        monkeypatch.setattr(module, "_fused", module._formula)
        monkeypatch.setattr(module, "_fused_bwd", module._formula_bwd)
    return str(request.param)


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("max_scores", [1 << 24, 20])
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", PACKS)
def test_equals_the_loop(name: str, causal: bool, max_scores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 20 scores a tile, each segment is a tile of its own."""
    monkeypatch.setattr("glmv.ops.attention_tiles.MAX_SCORES", max_scores)
    pack = PACKS[name]
    for heads, kv_heads in HEADS:
        inputs = pack.tensors(heads, kv_heads, 5)
        got, want = run(*inputs, pack, causal), truth(*inputs, pack, causal)
        assert max(errors(got, want)) < ATTENTION_FP64
        dout = torch.randn_like(got[0])
        grads, loop_grads = (torch.autograd.grad(x[0], inputs, dout, retain_graph=True) for x in (got, want))
        assert max(errors(grads, loop_grads)) < ATTENTION_FP64


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", PACKS)
def test_gradient_of_lse_equals_the_loop(name: str, causal: bool) -> None:
    pack = PACKS[name]
    inputs = pack.tensors(4, 2, 5)
    got, want = run(*inputs, pack, causal), truth(*inputs, pack, causal)
    seen = want[1].isfinite()
    dlse = torch.randn_like(want[1][seen])
    totals = [x[0].square().sum() + (dlse * x[1][seen]).sum() for x in (got, want)]
    grads, loop_grads = (torch.autograd.grad(x, inputs, materialize_grads=True) for x in totals)
    assert max(errors(grads, loop_grads)) < ATTENTION_FP64


def test_hand_numbers() -> None:
    """Scores ln 1 and ln 3: weights 1/4 and 3/4, lse ln 4; the first query sees the first key alone."""
    q, k, v = (torch.tensor(x, dtype=torch.float64).view(2, 1, 1) for x in ([1, 1], [0, math.log(3)], [4, 8]))
    out, lse = ops.attention_with_lse(q, k, v, cu([2]), causal=True, scale=1.0)
    assert (out.flatten() - torch.tensor([4.0, 7.0])).abs().max() < ATTENTION_FP64
    assert (lse.flatten() - torch.tensor([1.0, 4.0]).double().log()).abs().max() < ATTENTION_FP64


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("heads", HEADS)
def test_equals_pytorch(heads: tuple[int, int], causal: bool) -> None:
    """Segments of one length in fp32, as the vision tower has them: values and gradients."""
    pack = Pack([36] * 5)
    inputs = pack.tensors(*heads, 32, torch.float32)
    got = ops.attention(*inputs, pack.bounds()["cu_seqlens"], causal=causal)
    split = [x.view(5, 36, -1, 32).transpose(1, 2) for x in inputs]
    want = sdpa(*split, is_causal=causal, enable_gqa=True).transpose(1, 2).flatten(0, 1)
    assert errors((got,), (want,))[0] < ATTENTION_FP32
    dout = torch.randn_like(got)
    grads, want_grads = (torch.autograd.grad(x, inputs, dout) for x in (got, want))
    assert max(errors(grads, want_grads)) < ATTENTION_GRAD_FP32


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ["ragged", "more queries than keys", "cache, some unused"])
def test_gradcheck(name: str, causal: bool) -> None:
    pack = PACKS[name]

    def finite(*inputs: Tensor) -> tuple[Tensor, Tensor]:
        out, lse = run(*inputs, pack, causal)
        return out, lse[lse.isfinite()]

    assert torch.autograd.gradcheck(finite, tuple(pack.tensors(2, 1, 3)))


def test_decoding_equals_one_full_pass() -> None:
    """Keys appended to a cache step by step, one query a sequence: every step is a row of the full pass."""
    lengths, room = [7, 4, 6], 8
    full = Pack(lengths)
    q, k, v = full.tensors(4, 2, 6)
    want = ops.attention(q, k, v, full.bounds()["cu_seqlens"], causal=True)
    keys, values = (torch.zeros(len(lengths), room, 2, 6, dtype=torch.float64) for _ in range(2))
    starts = cu(lengths)[:-1]
    for step in range(max(lengths)):
        at = torch.tensor(
            [min(step, n - 1) for n in lengths]
        )  # a sequence that is over repeats its last step
        rows = starts + at
        keys[range(3), at], values[range(3), at] = k[rows].detach(), v[rows].detach()
        got = ops.attention(
            q[rows], keys.flatten(0, 1), values.flatten(0, 1), cu([1] * 3), causal=True,
            cu_seqlens_k=cu([room] * 3), seqused_k=(at + 1).int(), max_seqlen=1,
        )  # fmt: skip
        assert errors((got,), (want[rows],))[0] < ATTENTION_FP64


def test_parts_of_the_keys_merge_by_lse() -> None:
    """What lse is for: attention over all keys from attention over two halves of them."""
    q, k, v = Pack([6]).tensors(2, 2, 4)
    whole = ops.attention(q, k, v, cu([6]), causal=False)
    halves = [
        ops.attention_with_lse(q, k[part], v[part], cu([6]), causal=False, cu_seqlens_k=cu([3]))
        for part in (slice(0, 3), slice(3, 6))
    ]
    share = torch.stack([lse for _, lse in halves]).softmax(0).transpose(1, 2).unsqueeze(-1)
    assert errors((share[0] * halves[0][0] + share[1] * halves[1][0],), (whole,))[0] < ATTENTION_FP64


# ---- 2. low precision ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [True, False])
def test_low_precision(dtype: torch.dtype, causal: bool) -> None:
    pack = Pack([9, 20, 3])
    low = pack.tensors(4, 2, 16, dtype)
    exact = [x.detach().double().requires_grad_() for x in low]
    results = [run(*low, pack, causal), truth(*exact, pack, causal), truth(*low, pack, causal)]
    assert results[0][0].dtype == dtype
    assert results[0][1].dtype == torch.float32
    outs = [out for out, _ in results]
    assert_error_relative(*outs)
    dout = torch.randn_like(outs[0])
    grads = [
        torch.autograd.grad(out, x, dout.to(out.dtype))
        for out, x in zip(outs, (low, exact, low), strict=True)
    ]
    for got, want, plain in zip(*grads, strict=True):
        assert_error_relative(got, want, plain)


# ---- 3. bitwise facts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [Pack([5, 5, 5]), Pack([5, 9, 2, 5]), Pack([1, 1, 1], [6, 6, 6], [4, 6, 1])])
@pytest.mark.parametrize("causal", [True, False])
def test_segments_do_not_leak(pack: Pack, causal: bool) -> None:
    """Another content of segment 1 changes no bit of the others, values and gradients."""
    inputs = pack.tensors(4, 2, 8, torch.float32)
    other = [x.detach().clone() for x in inputs]
    q_rows, k_rows = slice(*cu(pack.q)[1:3]), slice(*cu(pack.k or pack.q)[1:3])
    for x, rows in zip(other, (q_rows, k_rows, k_rows), strict=True):
        x[rows] = 3 * torch.randn_like(x[rows])
    other = [x.requires_grad_() for x in other]
    results = []
    for x in (inputs, other):
        out, lse = run(*x, pack, causal)
        results.append((out, lse.T, *torch.autograd.grad(out.square().sum(), x)))
    for one, two, rows in zip(*results, (q_rows, q_rows, q_rows, k_rows, k_rows), strict=True):
        outside = torch.ones(len(one), dtype=torch.bool)
        outside[rows] = False
        assert torch.equal(one[outside], two[outside])
        assert not torch.equal(one[rows], two[rows])


def test_two_runs_are_equal() -> None:
    pack = Pack([30, 17, 25, 17])
    inputs = pack.tensors(4, 1, 32, torch.float32)
    runs = []
    for _ in range(2):
        out, lse = run(*inputs, pack, True)
        runs.append((out, lse, *torch.autograd.grad(out.sum() + lse.sum(), inputs)))
    assert all(torch.equal(x, y) for x, y in zip(*runs, strict=True))


# ---- 4. strides, poison, nothing at all ----------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[4, 6], [5, 5], [1] * 10])
@pytest.mark.parametrize("causal", [True, False])
def test_views_of_a_fused_projection(lengths: list[int], causal: bool) -> None:
    """q, k, v as they come out of one qkv GEMM, a gradient of stride 0, and rows that are no unit stride."""
    pack = Pack(lengths)
    qkv = torch.randn(10, 5, 8, dtype=torch.float64, requires_grad=True)
    parts = qkv[:, :3], qkv[:, 3:4], qkv[:, 4:]
    got = torch.autograd.grad(run(*parts, pack, causal)[0].sum(), qkv)
    want = torch.autograd.grad(truth(*parts, pack, causal)[0].sum(), qkv)
    assert errors(got, want)[0] < ATTENTION_FP64
    turned = [x.detach().transpose(0, 2).contiguous().transpose(0, 2).requires_grad_() for x in parts]
    out, want_out = run(*turned, pack, causal)[0], truth(*turned, pack, causal)[0]
    dout = torch.randn(8, 3, 10, dtype=torch.float64).transpose(0, 2)
    results = [(x, *torch.autograd.grad(x, turned, dout)) for x in (out, want_out)]
    assert max(errors(*results)) < ATTENTION_FP64


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize(
    "pack",
    [
        Pack([4, 4], beyond=3),
        Pack([4, 2], beyond=3),
        Pack([1, 1], [6, 6], [4, 2], 3),
        Pack([2, 3], [6, 6], [4, 3]),
    ],
)
def test_unused_rows_are_never_read(pack: Pack, bad: float) -> None:
    """Rows beyond the last bound and keys beyond seqused_k hold NaN: no result and no gradient does."""
    inputs = pack.tensors(2, 1, 4)
    k_starts = cu(pack.k or pack.q)
    idle = torch.ones(len(inputs[1]), dtype=torch.bool)
    for start, length in zip(k_starts[:-1], pack.used or pack.q, strict=True):
        idle[start : start + length] = False
    beyond = torch.arange(len(inputs[0])) >= sum(pack.q)
    clean = [x.detach().masked_fill(rows.view(-1, 1, 1), 0) for x, rows in zip(inputs, (beyond, idle, idle))]
    dirty = [x.masked_fill(rows.view(-1, 1, 1), bad) for x, rows in zip(clean, (beyond, idle, idle))]
    results = []
    for x in (clean, dirty):
        x = [y.requires_grad_() for y in x]
        out, lse = run(*x, pack, True)
        dout = torch.ones_like(out).masked_fill(beyond.view(-1, 1, 1), bad if x is dirty else 1)
        results.append((out, lse, *torch.autograd.grad(out, x, dout)))
    assert max(errors(*results)) < ATTENTION_FP64
    out, lse, dq, dk, dv = results[1]
    assert not out[beyond].any()
    assert not dq[beyond].any()
    assert not dk[idle].any()
    assert not dv[idle].any()
    assert (lse[:, beyond] == -math.inf).all()


@pytest.mark.parametrize("pack", [Pack([]), Pack([0]), Pack([], beyond=2)])
def test_nothing(pack: Pack) -> None:
    inputs = pack.tensors(2, 2, 4)
    out, lse = run(*inputs, pack, False)
    grads = torch.autograd.grad(out.sum(), inputs)
    assert not any(x.any() for x in (out, *grads))
    assert (lse == -math.inf).all()
    assert out.shape == inputs[0].shape


# ---- 6. opcheck and compile ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ragged", "cache, one query each"])
def test_opcheck(name: str) -> None:
    pack = PACKS[name]
    inputs = pack.tensors(2, 1, 4, torch.float32)
    bounds = [pack.bounds().get(n) for n in ("cu_seqlens", "cu_seqlens_k", "seqused_k")]
    flags = (True, 0.5, None, "ref")
    torch.library.opcheck(torch.ops.glmv.attention_fwd, (*inputs, *bounds, *flags))
    constants = [x.detach() for x in inputs]
    out, lse = torch.ops.glmv.attention_fwd(*constants, *bounds, *flags)
    torch.library.opcheck(torch.ops.glmv.attention_bwd, (out, lse, *constants, out, lse, *bounds, *flags))


def test_fullgraph_compile() -> None:
    pack = PACKS["ragged"]
    inputs = pack.tensors(2, 1, 4, torch.float32)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    results = []
    for f in (run, compiled):
        out, lse = f(*inputs, pack, True)
        results.append((out, lse, *torch.autograd.grad(out.square().sum(), inputs)))
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
