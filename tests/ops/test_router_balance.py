"""The balance loss against hand numbers and a loop in Python floats; the bias update against hand numbers."""

import math
import re
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from glmv.ops.router import route
from glmv.ops.router_balance import balance_loss, update_router_bias_
from tests.numeric import BALANCE_FP32_REL, ROUTER_FP64

F64 = torch.float64


def cu(*bounds: int) -> Tensor:
    return torch.tensor(bounds, dtype=torch.int32)


def loop(logits: Tensor, bounds: list[int], top_k: int, coef: float, denom: float) -> float:
    """The definition in Python floats, a sequence and a token at a time."""
    total, experts = 0.0, logits.shape[1]
    for start, end in pairwise(bounds):
        count, mass = [0] * experts, [0.0] * experts
        for row in logits[start:end].tolist():
            scores = [1 / (1 + math.exp(-x)) for x in row]
            for e in sorted(range(experts), key=lambda e: (-scores[e], e))[:top_k]:
                count[e] += 1
            mass = [m + s / sum(scores) for m, s in zip(mass, scores, strict=True)]
        n = end - start
        if n:
            total += coef * experts / (top_k * n * n) * sum(c * m for c, m in zip(count, mass, strict=True))
    return total / denom


# ---- balance_loss --------------------------------------------------------------------------------------


def test_hand_computed_loss() -> None:
    """Two experts, top 1. Scores (3/4, 1/4) twice, then (1/2, 1/2), each sequence for itself.

    Sequence 1: c = (2, 0), sum p = (3/2, 1/2), so 2 / (1 * 4) * 3 = 3/2.
    Sequence 2, a tie that goes to the first expert: 2 / 1 * 1/2 = 1.
    """
    logits = torch.tensor([[math.log(3), -math.log(3)]] * 2 + [[0.0, 0.0]])
    loss = balance_loss(logits, cu(0, 2, 3), top_k=1, coef=0.1, denom=4)
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, torch.tensor(0.1 * (1.5 + 1) / 4))


def test_even_load_gives_coef_per_sequence() -> None:
    logits = torch.eye(8, dtype=F64).repeat(2, 1)
    loss = balance_loss(logits, cu(0, 8, 16), top_k=1, coef=1e-4, denom=2)
    assert loss.item() == pytest.approx(1e-4)


@pytest.mark.parametrize("bounds", [[0, 13], [0, 4, 4, 9, 13], [0, 0, 13, 13], [0, 1, 2]])
@pytest.mark.parametrize("top_k", [1, 3, 6])
def test_matches_a_loop(bounds: list[int], top_k: int) -> None:
    logits = torch.randn(13, 6, dtype=F64, generator=torch.Generator().manual_seed(0))
    got = balance_loss(logits, cu(*bounds), top_k=top_k, coef=0.5, denom=3)
    assert got.item() == pytest.approx(loop(logits, bounds, top_k, 0.5, 3), rel=ROUTER_FP64)
    low = balance_loss(logits.float(), cu(*bounds), top_k=top_k, coef=0.5, denom=3)
    assert low.item() == pytest.approx(got.item(), rel=BALANCE_FP32_REL)


def test_micro_steps_add_up() -> None:
    logits = torch.randn(9, 6, dtype=F64)
    whole = balance_loss(logits, cu(0, 2, 7, 9), top_k=2, denom=3)
    parts = balance_loss(logits[:7], cu(0, 2, 7), top_k=2, denom=3) + balance_loss(
        logits[7:], cu(0, 2), top_k=2, denom=3
    )
    torch.testing.assert_close(whole, parts, rtol=ROUTER_FP64, atol=0)


def test_gradcheck() -> None:
    """Away from ties the counts are constant, so the numeric derivative sees p alone too."""
    logits = torch.randn(9, 5, dtype=F64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x: balance_loss(x, cu(0, 3, 3, 8), top_k=2, coef=1.0, denom=2), (logits,)
    )


def test_padding_rows_have_no_part() -> None:
    logits = torch.randn(6, 4)
    logits[4:] = math.nan
    logits.requires_grad_()
    loss = balance_loss(logits, cu(0, 4), top_k=2, denom=1)
    clean = balance_loss(logits[:4], cu(0, 4), top_k=2, denom=1)
    torch.testing.assert_close(loss, clean, rtol=BALANCE_FP32_REL, atol=0)
    (dlogits,) = torch.autograd.grad(loss, logits)
    assert dlogits.isfinite().all()
    assert torch.equal(dlogits[4:], torch.zeros(2, 4))


@pytest.mark.parametrize(("tokens", "bounds"), [(0, [0]), (0, [0, 0]), (3, [0])])
def test_no_sequence_gives_zero(tokens: int, bounds: list[int]) -> None:
    logits = torch.randn(tokens, 4, requires_grad=True)
    loss = balance_loss(logits, cu(*bounds), top_k=2, denom=1)
    assert loss.item() == 0
    assert torch.equal(torch.autograd.grad(loss, logits)[0], torch.zeros(tokens, 4))


@pytest.mark.parametrize("value", [-100.0, -math.inf, math.inf])
def test_extreme_logits_stay_finite(value: float) -> None:
    logits = torch.full((3, 4), value, requires_grad=True)
    loss = balance_loss(logits, cu(0, 3), top_k=2, denom=1)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_compiles_as_one_graph() -> None:
    logits = torch.randn(7, 4, requires_grad=True)

    def loss(x: Tensor, bounds: Tensor) -> Tensor:
        return balance_loss(x, bounds, top_k=2, denom=2)

    got = torch.compile(loss, fullgraph=True, backend="aot_eager")(logits, cu(0, 3, 7))
    want = loss(logits, cu(0, 3, 7))
    assert torch.equal(got, want)
    (dgot,), (dwant,) = (torch.autograd.grad(y, logits) for y in (got, want))
    torch.testing.assert_close(dgot, dwant, rtol=BALANCE_FP32_REL, atol=0)


LOSS_ERRORS = [
    ({"logits": torch.zeros(12)}, ValueError, "balance_loss: logits must be [T, E] float32|"),
    ({"cu_seqlens": torch.tensor([0, 4])}, TypeError, "cu_seqlens must be [S+1] int32 on cpu, got [2] int64"),
    ({"cu_seqlens": cu(1, 4)}, ValueError, "cu_seqlens must be bounds that start at 0, got 1 (int)"),
    ({"cu_seqlens": cu(0, 3, 2)}, ValueError, "cu_seqlens must be bounds that never fall"),
    ({"cu_seqlens": cu(0, 5)}, ValueError, "cu_seqlens must be bounds that end at most at 4"),
    ({"top_k": 0}, ValueError, "top_k must be in [1, E=12], got 0 (int)"),
    ({"top_k": 13}, ValueError, "top_k must be in [1, E=12]"),
    ({"denom": 0}, ValueError, "denom must be positive, got 0 (int)"),
]


@pytest.mark.parametrize(("change", "kind", "message"), LOSS_ERRORS, ids=map(str, range(len(LOSS_ERRORS))))
def test_loss_errors(change: dict[str, object], kind: type[Exception], message: str) -> None:
    arguments = {"logits": torch.zeros(4, 12), "cu_seqlens": cu(0, 4), "denom": 1} | change
    with pytest.raises(kind, match=re.escape(message)):
        balance_loss(**arguments)  # type: ignore[arg-type]


# ---- update_router_bias_ -------------------------------------------------------------------------------


def test_hand_computed_update() -> None:
    bias = torch.tensor([0.5, 0.5, 0.5, 0.5])
    update_router_bias_(bias, torch.tensor([4, 4, 4, 20], dtype=torch.int32), rate=0.01)
    torch.testing.assert_close(bias, torch.tensor([0.51, 0.51, 0.51, 0.49]))
    update_router_bias_(bias, torch.tensor([5, 5, 5, 5]))
    torch.testing.assert_close(bias, torch.tensor([0.51, 0.51, 0.51, 0.49]))


def test_centered_update_keeps_the_mean() -> None:
    """The steps (1, 1, 1, -1) have mean 1/2."""
    bias = torch.zeros(4, dtype=F64)
    update_router_bias_(bias, torch.tensor([4, 4, 4, 20]), rate=0.01, center=True)
    torch.testing.assert_close(bias, torch.tensor([0.005, 0.005, 0.005, -0.015], dtype=F64))


def test_counts_beyond_24_bits_are_exact() -> None:
    """In fp32 2^24 + 1 is 2^24, and all three would equal the mean."""
    bias = torch.zeros(3)
    update_router_bias_(bias, torch.tensor([2**24, 2**24 + 1, 2**24 + 2], dtype=torch.int32), rate=1.0)
    assert bias.tolist() == [1.0, 0.0, -1.0]


def test_update_leaves_no_trace_in_autograd() -> None:
    bias = torch.nn.Parameter(torch.zeros(2))
    update_router_bias_(bias, torch.tensor([1, 3]), rate=1.0)
    assert bias.tolist() == [1.0, -1.0]
    assert bias.is_leaf


def test_update_balances_a_skewed_router() -> None:
    """Expert 0 is preferred by every token; the bias spreads the load until no expert idles."""
    g = torch.Generator().manual_seed(0)
    offset = torch.tensor([1.0, 0, 0, 0, 0, 0, 0, -1.0])
    bias = torch.zeros(8)
    logits = torch.randn(512, 8, generator=g) + offset
    before = route(logits, bias, top_k=2).counts
    for _ in range(200):
        update_router_bias_(bias, route(logits, bias, top_k=2).counts, rate=5e-3)
    after = route(logits, bias, top_k=2).counts
    assert int(before.max() - before.min()) > 200
    assert int(after.max() - after.min()) < 40  # 512 * 2 / 8 = 128 each would be even


UPDATE_ERRORS = [
    ({"bias": torch.zeros(4).bfloat16()}, TypeError, "update_router_bias_: bias must be [E] float32|float64"),
    ({"bias": torch.zeros(1, 4)}, ValueError, "bias must be [E] float32|float64"),
    ({"counts": torch.zeros(4)}, TypeError, "counts must be [E=4] int32|int64 on cpu, got [4] float32"),
    ({"counts": torch.zeros(5, dtype=torch.int32)}, ValueError, "counts must be [E=4] int32|int64 on cpu"),
]


@pytest.mark.parametrize(
    ("change", "kind", "message"), UPDATE_ERRORS, ids=map(str, range(len(UPDATE_ERRORS)))
)
def test_update_errors(change: dict[str, object], kind: type[Exception], message: str) -> None:
    arguments = {"bias": torch.zeros(4), "counts": torch.zeros(4, dtype=torch.int32)} | change
    with pytest.raises(kind, match=re.escape(message)):
        update_router_bias_(**arguments)  # type: ignore[arg-type]
