"""rope against complex arithmetic in fp64, transformers' functions and hand numbers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glmv import ops
from glmv.backend import BackendError, last_backend
from glmv.bench.cases import ROPE, Rope
from glmv.ops.rope import reference
from tests.numeric import ROPE_ABS, ROPE_FP64_ABS, ROPE_INVERSE_ABS, ROPE_SINCOS_ABS
from tests.ops.rope_oracle import (
    LAYOUTS,
    NATIVE_MISSING,
    assert_rounded_once,
    each_backend,
    make,
    make_strided,
    truth,
)

# ---- 1. the reference ----------------------------------------------------------------------------------


def test_hand_numbers() -> None:
    quarter = torch.tensor([torch.pi / 2])
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 5.0]]]).double()
    args = torch.tensor([[1]]), torch.cat((quarter, 2 * quarter)), torch.tensor([0, 0])
    # Lane 0 by 90 degrees: (a, b) -> (-b, a); lane 1 by 180: (a, b) -> (-a, -b); the fifth dimension stays.
    half = torch.tensor([[[-3.0, -2.0, 1.0, -4.0, 5.0]]]).double()
    adjacent = torch.tensor([[[-2.0, 1.0, -3.0, -4.0, 5.0]]]).double()
    for pairing, want in (("half", half), ("adjacent", adjacent)):
        y, none = ops.rope(x, None, *args, pairing)
        assert none is None
        assert (y - want).abs().max() < ROPE_ABS


@pytest.mark.parametrize("name", ["glm-4.1v text", "glm-4.5v text"])
def test_equals_transformers_text(name: str) -> None:
    dense = pytest.importorskip("transformers.models.glm4v.modeling_glm4v")
    moe = pytest.importorskip("transformers.models.glm4v_moe.modeling_glm4v_moe")
    q, k, pos, inv_freq, axis, pairing = make(ROPE[name], tokens=31)
    angle = torch.cat(
        [m[i % 3] for i, m in enumerate((pos[..., None].float() * inv_freq).split(ROPE[name].sections, -1))],
        -1,
    )[None]
    angle = angle.repeat_interleave(2, -1) if pairing == "adjacent" else torch.cat((angle, angle), -1)
    theirs = dense.apply_rotary_pos_emb if pairing == "adjacent" else moe.apply_rotary_pos_emb
    want = theirs(q[None], k[None], angle.cos(), angle.sin(), unsqueeze_dim=2)
    for got, hf in zip(ops.rope(q, k, pos, inv_freq, axis, pairing), want, strict=True):
        assert (got - hf[0]).abs().max() <= ROPE_ABS


def test_equals_transformers_vision() -> None:
    dense = pytest.importorskip("transformers.models.glm4v.modeling_glm4v")
    q, k, pos, inv_freq, axis, pairing = make(ROPE["glm-v vision"], tokens=40)
    lanes = 1.0 / (10000.0 ** (torch.arange(0, 64, 2) / 64))
    angle = (pos.T[..., None].float() * lanes).flatten(1)
    angle = torch.cat((angle, angle), -1)
    want = dense.apply_rotary_pos_emb_vision(q, k, angle.cos(), angle.sin())
    for got, hf in zip(ops.rope(q, k, pos, inv_freq, axis, pairing), want, strict=True):
        assert (got - hf).abs().max() <= ROPE_ABS


@pytest.mark.parametrize("pairing", ["half", "adjacent"])
def test_gradcheck(pairing: str) -> None:
    q, k, *tables, _ = make(Rope(2, 1, 10, (2, 1, 1), pairing), 5, torch.float64)
    inputs = (q.requires_grad_(), k.requires_grad_())
    assert torch.autograd.gradcheck(lambda q, k: ops.rope(q, k, *tables, pairing), inputs)
    assert torch.autograd.gradgradcheck(lambda q, k: ops.rope(q, k, *tables, pairing), inputs)
    assert torch.autograd.gradcheck(lambda q, k: reference(q, k, *tables, pairing), inputs)


def test_fp64_takes_sine_and_cosine_in_fp64() -> None:
    q, k, *tables, pairing = make(ROPE["glm-4.1v text"], dtype=torch.float64)
    assert (ops.rope(q, k, *tables, pairing)[0] - truth(q, *tables, pairing)).abs().max() < ROPE_FP64_ABS
    assert last_backend("rope") == "ref"


# ---- 2. every backend against fp64 ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", LAYOUTS, ids=str)
@each_backend
def test_forward_and_backward(shape: Rope, dtype: torch.dtype, device: str, backend: str) -> None:
    q, k, *tables, pairing = make(shape, dtype=dtype, device=device)
    y = ops.rope(q.requires_grad_(), k.requires_grad_(), *tables, pairing, backend=backend)
    dy = [torch.randn_like(t) for t in y]
    dx = torch.autograd.grad(y, (q, k), dy)
    for x, out, dout, grad in zip((q, k), y, dy, dx, strict=True):
        assert out.dtype == grad.dtype == dtype
        assert out.is_contiguous()
        assert_rounded_once(out, truth(x, *tables, pairing))
        assert_rounded_once(grad, truth(dout, *tables, pairing, sign=-1))


@each_backend
def test_large_positions(device: str, backend: str) -> None:
    """Past 65,535 a range reduction must keep all digits; angles in bf16 would be off by radians."""
    pos = torch.tensor([[0, -3, 65_535, 65_537, 333_333, 1_048_575, 1_048_576, -1_048_576]], device=device)
    x = torch.tensor([1.0, 0.0], device=device).expand(8, 1, 2)
    inv_freq, axis = torch.ones(1, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    got = ops.rope(x, None, pos, inv_freq, axis, backend=backend)[0]
    assert (got.double().cpu() - truth(x, pos, inv_freq, axis, "half")).abs().max() < ROPE_SINCOS_ABS


# ---- 3. bitwise facts and properties -------------------------------------------------------------------


@pytest.mark.parametrize("name", ROPE)
@each_backend
def test_bitwise_facts(name: str, device: str, backend: str) -> None:
    q, k, pos, inv_freq, axis, pairing = make(ROPE[name], dtype=torch.bfloat16, device=device)
    rotary = 2 * len(inv_freq)
    y = ops.rope(q, k, pos, inv_freq, axis, pairing, backend=backend)
    again = ops.rope(q, k, pos.long(), inv_freq, axis.long(), pairing, backend=backend)
    mine = q.clone(), k.clone()
    back = ops.rope_(*mine, pos, inv_freq, axis, pairing, backend=backend)
    at_zero = ops.rope(q, k, torch.zeros_like(pos), inv_freq, axis, pairing, backend=backend)
    for i, x in enumerate((q, k)):
        assert back[i] is mine[i]
        assert torch.equal(y[i][..., rotary:], x[..., rotary:])
        assert torch.equal(y[i], again[i])
        assert torch.equal(y[i], mine[i])
        assert torch.equal(at_zero[i], x)


@each_backend
def test_text_equals_one_axis(device: str, backend: str) -> None:
    q, k, _, inv_freq, axis, pairing = make(ROPE["glm-4.1v text"], device=device)
    text = torch.arange(11, device=device)
    three = ops.rope(q, k, text.expand(3, -1), inv_freq, axis, pairing, backend=backend)
    one = ops.rope(q, k, text[None], inv_freq, torch.zeros_like(axis), pairing, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(three, one, strict=True))


@settings(max_examples=40, deadline=None)
@given(
    tokens=st.integers(0, 9),
    heads=st.integers(1, 4),
    sections=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    still=st.integers(0, 3),
    pairing=st.sampled_from(["half", "adjacent"]),
    start=st.integers(-1000, 100_000),
)
def test_conjugate_is_the_inverse(
    tokens: int, heads: int, sections: list[int], still: int, pairing: str, start: int
) -> None:
    shape = Rope(heads, 1, 2 * sum(sections) + still, tuple(sections), pairing)
    q, k, pos, inv_freq, axis, _ = make(shape, tokens)
    args = pos + start, inv_freq, axis, pairing == "adjacent"
    for backend in ("ref",) if NATIVE_MISSING else ("ref", "native"):
        there = torch.ops.glmv.rope_fwd(q, k, *args, False, backend)
        back = torch.ops.glmv.rope_fwd(*there, *args, True, backend)
        for x, y in zip((q, k), back, strict=True):
            assert torch.allclose(x, y, rtol=0, atol=ROPE_INVERSE_ABS)


# ---- 4. memory -----------------------------------------------------------------------------------------


@each_backend
def test_strided_views(device: str, backend: str) -> None:
    q, k, *tables, pairing = make_strided(device)
    qkv = q._base
    assert qkv is not None
    values = qkv[:, 5:].clone()
    want = [truth(x, *tables, pairing) for x in (q, k)]
    for got, x in zip(ops.rope(q, k, *tables, pairing, backend=backend), want, strict=True):
        assert_rounded_once(got, x)
    ops.rope_(q, k, *tables, pairing, backend=backend)
    for got, x in zip((q, k, qkv[:, 5:]), (*want, values.double().cpu()), strict=True):
        assert_rounded_once(got, x)


@each_backend
def test_heads_first_memory(device: str, backend: str) -> None:
    q, k, *tables, pairing = make(ROPE["glm-4.1v text"], device=device)
    view = q.transpose(0, 1).contiguous().transpose(0, 1)
    assert view.stride() != q.stride()
    got = ops.rope(view, k, *tables, pairing, backend=backend)
    assert all(torch.equal(a, b) for a, b in zip(got, ops.rope(q, k, *tables, pairing, backend=backend)))


@each_backend
def test_every_output_is_written(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, *tables, pairing = make(ROPE["glm-4.5v text"], device=device)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)  # fresh memory is now filled with NaN
    try:
        assert torch.empty(3, device=device).isnan().all()
        y = ops.rope(q, k, *tables, pairing, backend=backend)
    finally:
        torch.use_deterministic_algorithms(False)
    assert not any(t.isnan().any() for t in y)


@pytest.mark.parametrize(("tokens", "heads", "kv_heads"), [(0, 2, 1), (1, 1, 1), (3, 0, 2), (3, 2, 0)])
@each_backend
def test_empty_and_single(tokens: int, heads: int, kv_heads: int, device: str, backend: str) -> None:
    q, k, *tables, pairing = make(Rope(heads, kv_heads, 8, (1, 1, 1), "half"), tokens, device=device)
    y = ops.rope(q.requires_grad_(), k.requires_grad_(), *tables, pairing, backend=backend)
    grads = torch.autograd.grad(sum(t.sum() for t in y), (q, k))
    for x, out, grad in zip((q, k), y, grads, strict=True):
        assert out.shape == grad.shape == x.shape
        assert_rounded_once(out, truth(x, *tables, pairing))


def test_last_dimension_with_a_step() -> None:
    q, k, *tables, pairing = make(ROPE["tiny text"])
    step = torch.stack((q, q), -1).flatten(-2)[..., ::2]
    assert torch.equal(
        ops.rope(step, k, *tables, pairing)[0], ops.rope(q, k, *tables, pairing, backend="ref")[0]
    )
    assert last_backend("rope") == "ref"
    with pytest.raises(BackendError, match="the last dimension of q and k must have stride 1"):
        ops.rope(step, k, *tables, pairing, backend="native")


# ---- 5. messages ---------------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "q": torch.zeros(4, 2, 8),
    "k": torch.zeros(4, 1, 8),
    "pos": torch.zeros(3, 4, dtype=torch.int64),
    "inv_freq": torch.ones(2),
    "axis_of_lane": torch.tensor([0, 2]),
}
FLOATS = "[T, H, D] float32|bfloat16|float16|float64"
BAD: list[tuple[str, object, type[Exception], str]] = [
    ("q", torch.zeros(4, 16), ValueError, f"{FLOATS}, got [4, 16] float32 on cpu"),
    ("q", torch.zeros(4, 2, 8, dtype=torch.int32), TypeError, f"{FLOATS}, got [4, 2, 8] int32 on cpu"),
    ("q", [1.0], TypeError, "a tensor, got [1.0] (list)"),
    ("k", torch.zeros(3, 1, 8), ValueError, "[T=4, Hk, D=8] float32 on cpu, got [3, 1, 8] float32 on cpu"),
    ("k", GOOD["k"].half(), TypeError, "[T=4, Hk, D=8] float32 on cpu, got [4, 1, 8] float16 on cpu"),
    ("pos", torch.zeros(3, 5).int(), ValueError, "[A, T=4] int32|int64 on cpu, got [3, 5] int32 on cpu"),
    ("pos", torch.zeros(3, 4), TypeError, "[A, T=4] int32|int64 on cpu, got [3, 4] float32 on cpu"),
    ("inv_freq", torch.ones(2).double(), TypeError, "[R/2] float32 on cpu, got [2] float64 on cpu"),
    ("inv_freq", torch.ones(5), ValueError, "[R/2] with 2 <= R <= D=8, got [5] float32 on cpu"),
    ("inv_freq", torch.ones(0), ValueError, "[R/2] with 2 <= R <= D=8, got [0] float32 on cpu"),
    ("axis_of_lane", torch.tensor([0]), ValueError, "[R/2=2] int32|int64 on cpu, got [1] int64 on cpu"),
    ("axis_of_lane", torch.tensor([0, 3]), ValueError, "within 0 and A - 1 = 2, got [0, 3] (list)"),
    ("axis_of_lane", torch.tensor([-1, 0]), ValueError, "within 0 and A - 1 = 2, got [-1, 0] (list)"),
    ("pairing", "interleaved", ValueError, "one of 'half', 'adjacent', got 'interleaved'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD)
@pytest.mark.parametrize("op", ["rope", "rope_"])
def test_messages(op: str, name: str, value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        getattr(ops, op)(**{**GOOD, name: value})
    assert str(caught.value) == f"{op}: {name} must be {message}"


def test_in_place_messages() -> None:
    with pytest.raises(
        ValueError, match=r"rope_: k must be without requires_grad \(or use rope\), got \[4, 1, 8\]"
    ):
        ops.rope_(**{**GOOD, "k": torch.zeros(4, 1, 8, requires_grad=True)})
    with pytest.raises(ValueError, match=r"rope_: q must be without overlap in memory, got \[4, 2, 8\]"):
        ops.rope_(**{**GOOD, "q": torch.zeros(4, 1, 8).expand(4, 2, 8)})


def test_backend_that_cannot_run_says_why() -> None:
    with pytest.raises(
        BackendError, match="rope: backend 'native' cannot run this call: float64 is not supported"
    ):
        ops.rope(**{**GOOD, "q": GOOD["q"].double(), "k": None}, backend="native")
    with pytest.raises(BackendError, match="needs a CUDA device, got cpu"):
        ops.rope(**GOOD, backend="triton")


# ---- 6. torch.library, compile, launches ---------------------------------------------------------------


@pytest.mark.parametrize("shape", [ROPE["tiny text"], ROPE["glm-v vision"]], ids=str)
@each_backend
def test_opcheck(shape: Rope, device: str, backend: str) -> None:
    q, k, *tables, pairing = make(shape, 5, device=device)
    flags = pairing == "adjacent", False, backend
    torch.library.opcheck(torch.ops.glmv.rope_.default, (q.clone(), k.clone(), *tables, *flags))
    inputs = q.requires_grad_(), k.requires_grad_(), *tables
    torch.library.opcheck(torch.ops.glmv.rope_fwd.default, (*inputs, *flags))


@pytest.mark.parametrize("name", ["glm-4.1v text", "glm-v vision"])
@each_backend
def test_compiles_whole(name: str, device: str, backend: str) -> None:
    q, k, *tables, pairing = make(ROPE[name], 5, device=device)

    def loss(q: Tensor, k: Tensor) -> Tensor:
        y_q, y_k = ops.rope(q, k, *tables, pairing, backend=backend)
        return y_q.square().sum() + (y_k[:, :1] * y_q[:, :1]).sum()

    def in_place(q: Tensor) -> Tensor:
        return ops.rope_(q * 1.0, None, *tables, pairing, backend=backend)[0] + 1.0

    want = torch.autograd.grad(loss(q.requires_grad_(), k.requires_grad_()), (q, k))
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    assert all(
        torch.equal(a, b) for a, b in zip(torch.autograd.grad(compiled(q, k), (q, k)), want, strict=True)
    )
    with torch.no_grad():
        got = torch.compile(in_place, fullgraph=True, backend="aot_eager")(q)
        assert torch.equal(got, in_place(q))


@pytest.mark.skipif(bool(NATIVE_MISSING), reason=str(NATIVE_MISSING))
def test_one_launch_and_no_temporaries() -> None:
    q, k, *tables, pairing = make_strided("cpu")

    def count(call: Callable[..., Any]) -> list[str]:
        with torch.profiler.profile() as profile:
            call(q, k, *tables, pairing, backend="native")
        names = {"aten::new_empty", "aten::copy_", "aten::clone", "aten::contiguous", "aten::to"}
        return sorted(e.name for e in profile.events() if "glmv_native" in e.name or e.name in names)

    assert count(ops.rope) == ["aten::new_empty", "aten::new_empty", "glmv_native::rope"]
    assert count(ops.rope_) == ["glmv_native::rope_"]
