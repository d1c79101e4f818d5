"""attention: every error message, any lengths, and what went wrong in public implementations, by issue."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import ops
from glmv.backend import BackendError
from tests.numeric import ATTENTION_FP64
from tests.ops.attention_oracle import Pack, cu, truth

# ---- 5. error messages ---------------------------------------------------------------------------------

Q, K = torch.zeros(6, 4, 8), torch.zeros(6, 2, 8)


def ints(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


MESSAGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "q rank": ({"q": Q[0]}, ValueError, "q must be [T, H, D] float32|bfloat16|float16|float64, got [4, 8]"),
    "q type": ({"q": 3}, TypeError, "q must be a tensor, got 3 (int)"),
    "q empty": ({"q": Q[:, :0]}, ValueError, "q must be [T, H, D] with H, D > 0, got [6, 0, 8] float32"),
    "k dtype": ({"k": K.half()}, TypeError, "k must be [Tk=6, Hk, D=8] float32 on cpu, got [6, 2, 8]"),
    "k rows": ({"k": K[:5]}, ValueError, "k must be [Tk=6, Hk, D=8] float32 on cpu, got [5, 2, 8] float32"),
    "k heads": ({"k": Q[:, :3]}, ValueError, "k must be [Tk, Hk, D] with Hk a divisor of H=4, got [6, 3, 8]"),
    "k empty": ({"k": Q[:, :0]}, ValueError, "k must be [Tk, Hk, D] with Hk a divisor of H=4, got [6, 0, 8]"),
    "v": ({"v": K[..., :4]}, ValueError, "v must be [Tk=6, Hk=2, D=8] float32 on cpu, got [6, 2, 4] float32"),
    "bounds dtype": ({"cu_seqlens": cu([6]).long()}, TypeError, "must be [S+1] int32 on cpu, got [2] int64"),
    "no bound": ({"cu_seqlens": cu([])[:0]}, ValueError, "cu_seqlens must be [S+1] with at least one bound"),
    "start": ({"cu_seqlens": cu([2, 4])[1:]}, ValueError, "cu_seqlens must be bounds that start at 0, got 2"),
    "fall": ({"cu_seqlens": ints(0, 4, 3)}, ValueError, "must be bounds that never fall, got [4, 3]"),
    "end": ({"cu_seqlens": cu([7])}, ValueError, "cu_seqlens must be bounds that end at most at 6, got 7"),
    "key bounds": ({"cu_seqlens_k": cu([3, 3])}, ValueError, "cu_seqlens_k must be [S+1=2] int32 on cpu"),
    "key end": ({"cu_seqlens_k": cu([7])}, ValueError, "cu_seqlens_k must be bounds that end at most at 6"),
    "used size": ({"seqused_k": ints(1, 1)}, ValueError, "seqused_k must be [S=1] int32 on cpu, got [2]"),
    "used high": (
        {"seqused_k": ints(7)}, ValueError,
        "seqused_k must be at least 0 and at most the rows of each segment of k, got {0: 7}",
    ),
    "used low": ({"seqused_k": ints(-1)}, ValueError, "at most the rows of each segment of k, got {0: -1}"),
    "backend": ({"backend": "triton"}, BackendError, "backend 'triton' cannot run this call"),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    wrong, kind, message = MESSAGES[name]
    arguments: dict[str, Any] = {"q": Q, "k": K, "v": wrong.get("k", K), "cu_seqlens": cu([6])} | wrong
    with pytest.raises(kind, match=re.escape(message)) as caught:
        ops.attention(**arguments, causal=True)
    assert str(caught.value).startswith("attention: ")


def test_values_are_checked_in_compiled_code_too() -> None:
    compiled = torch.compile(ops.attention, fullgraph=True, backend="aot_eager")
    with pytest.raises(ValueError, match="cu_seqlens must be bounds that end at most at 6, got 7"):
        compiled(Q, K, K, cu([7]), causal=True)


# ---- any lengths ---------------------------------------------------------------------------------------


def check(pack: Pack, causal: bool) -> None:
    """Values and gradients of two heads over one against the loop."""
    inputs = pack.tensors(2, 1, 3)
    got, lse = ops.attention_with_lse(*inputs, **pack.bounds(), causal=causal)
    want, want_lse = truth(*inputs, pack, causal)
    assert torch.equal(lse.isfinite(), want_lse.isfinite())
    dout = torch.randn_like(got)
    grads = torch.autograd.grad(got, inputs, dout)
    want_grads = torch.autograd.grad(want, inputs, dout)
    finite = lse.isfinite()
    pairs = [(got, want), (lse[finite], want_lse[finite]), *zip(grads, want_grads, strict=True)]
    assert all((x - y).abs().sum() < ATTENTION_FP64 for x, y in pairs)


def test_any_lengths() -> None:
    hypothesis = pytest.importorskip("hypothesis")
    st = hypothesis.strategies
    segment = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))  # queries, keys, room behind

    @hypothesis.settings(max_examples=60)
    @hypothesis.given(st.lists(segment, max_size=6), st.booleans(), st.booleans(), st.integers(0, 2))
    def property_(segments: list[tuple[int, int, int]], causal: bool, same: bool, beyond: int) -> None:
        q, k, extra = ([x[i] for x in segments] for i in range(3))
        room = [a + b for a, b in zip(k, extra, strict=True)]
        check(Pack(q, beyond=beyond) if same else Pack(q, room, k, beyond), causal)

    property_()


def test_order_of_segments_does_not_matter() -> None:
    lengths = [5, 0, 9, 2, 7]
    inputs = Pack(lengths).tensors(4, 2, 8)
    parts = [[y.detach() for y in x.split(lengths)] for x in inputs]
    order = [3, 2, 0, 4, 1]
    moved = [torch.cat([x[i] for i in order]) for x in parts]
    want = ops.attention(*inputs, cu(lengths), causal=True).split(lengths)
    got = ops.attention(*moved, cu([lengths[i] for i in order]), causal=True)
    assert (got - torch.cat([want[i] for i in order])).abs().max() < ATTENTION_FP64


# ---- 7. public bugs ------------------------------------------------------------------------------------


def test_flash_attention_1537_one_query_each_among_empty_segments() -> None:
    """max_seqlen 1 with empty segments took the reshape of decoding and failed."""
    check(Pack([1, 0, 1, 1, 0]), causal=True)
    check(Pack([1, 0, 1], [4, 4, 4], [3, 2, 4]), causal=True)


@pytest.mark.parametrize("pack", [Pack([]), Pack([0, 0, 0]), Pack([0, 3]), Pack([0, 2], [5, 2])])
def test_flash_attention_1159_2562_2421_nothing_in_a_batch_or_a_segment(pack: Pack) -> None:
    """A batch of 0 failed; a query segment of length 0 hung, read foreign memory or gave NaN."""
    check(pack, causal=True)
    check(pack, causal=False)


def test_flash_attention_2167_gradients_with_seqused() -> None:
    """The backward pass ignored seqused_k: unused keys got gradients."""
    check(Pack([3, 2], [6, 6], [4, 2]), causal=True)
    check(Pack([3, 2], [6, 6], [4, 2]), causal=False)


def test_flash_attention_1773_segment_longer_than_max_seqlen() -> None:
    """Undefined results there; here an error, and any larger bound changes nothing."""
    q, k, v = Pack([4, 2]).tensors(2, 2, 3)
    with pytest.raises(ValueError, match="max_seqlen must be None or at least 4, got 3"):
        ops.attention(q, k, v, cu([4, 2]), causal=True, max_seqlen=3)
    want = ops.attention(q, k, v, cu([4, 2]), causal=True)
    for bound in (4, 1000):
        assert torch.equal(ops.attention(q, k, v, cu([4, 2]), causal=True, max_seqlen=bound), want)


def test_flash_attention_2611_gradient_with_large_strides() -> None:
    """Offsets into a strided dout overflowed; here a dout that is a slice of a wide buffer."""
    q, k, v = Pack([5, 3]).tensors(2, 1, 4)
    out = ops.attention(q, k, v, cu([5, 3]), causal=True)
    wide = torch.randn(8, 2, 4096, dtype=torch.float64)
    strided = wide[:, :, ::1024]
    got = torch.autograd.grad(out, (q, k, v), strided, retain_graph=True)
    want = torch.autograd.grad(out, (q, k, v), strided.contiguous())
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


def test_torchtitan_3893_new_bounds_in_the_same_tensor() -> None:
    """Offsets of an earlier call were used again: nothing of the bounds may be kept between calls."""
    q, k, v = Pack([4, 4]).tensors(2, 2, 3)
    bounds = cu([4, 4])
    first = ops.attention(q, k, v, bounds, causal=True)
    bounds[1] = 6
    second = ops.attention(q, k, v, bounds, causal=True)
    assert torch.equal(second, ops.attention(q, k, v, cu([6, 2]), causal=True))
    assert not torch.equal(first, second)


def test_flash_attention_1351_no_length_needed_under_compile() -> None:
    """max_seqlen had to be a number that the host reads: a graph break for every batch."""

    def layer(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor) -> Tensor:
        return ops.attention(q, k, v, (bounds * 1).int(), causal=True)

    q, k, v = (x.detach() for x in Pack([4, 4]).tensors(2, 2, 3))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for lengths in ([4, 4], [1, 7]):
        assert torch.equal(compiled(q, k, v, cu(lengths)), layer(q, k, v, cu(lengths)))
