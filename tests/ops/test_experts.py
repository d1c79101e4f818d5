"""experts against a dense loop over tokens in fp64 and against transformers' experts."""

import re

import pytest
import torch
from torch import Tensor

from glmv.backend import BackendError, last_backend
from glmv.ops.experts import experts, sort_slots
from glmv.ops.router import Routing, route
from tests.numeric import EXPERTS_FP32, EXPERTS_FP64, assert_error_relative

F64 = torch.float64
Weights = tuple[Tensor, Tensor]  # gate_up [E, 2I, C], down [E, C, I]


def layer(number: int, width: int, inner: int, dtype: torch.dtype = F64) -> Weights:
    g = torch.Generator().manual_seed(1)
    gate_up = torch.randn(number, 2 * inner, width, generator=g, dtype=F64) / width**0.5
    down = torch.randn(number, width, inner, generator=g, dtype=F64) / inner**0.5
    return gate_up.to(dtype).requires_grad_(), down.to(dtype).requires_grad_()


def tokens_of(tokens: int, width: int, dtype: torch.dtype = F64) -> Tensor:
    g = torch.Generator().manual_seed(2)
    return torch.randn(tokens, width, generator=g, dtype=F64).to(dtype).requires_grad_()


def routing_of(chosen: list[list[int]], number: int, dtype: torch.dtype = F64) -> Routing:
    """Random weights (0 at -1) for the given experts."""
    index = torch.tensor(chosen, dtype=torch.int32)
    g = torch.Generator().manual_seed(3)
    weights = torch.rand(index.shape, generator=g, dtype=F64).to(dtype) * (index >= 0)
    counts = torch.bincount(index[index >= 0].long(), minlength=number).int()
    return Routing(weights.requires_grad_(), index, counts)


def dense(x: Tensor, routing: Routing, gate_up: Tensor, down: Tensor) -> Tensor:
    """A token and a choice at a time, in fp64: no sorting, no grouping."""
    x, weights, gate_up, down = x.double(), routing.weights.double(), gate_up.double(), down.double()
    inner, rows = down.shape[2], []
    for t, chosen in enumerate(routing.experts.tolist()):
        row = 0 * x[t]
        for k, e in enumerate(chosen):
            if e >= 0:
                h = gate_up[e] @ x[t]
                gate, up = h[:inner], h[inner:]
                row = row + weights[t, k] * (down[e] @ (gate * torch.sigmoid(gate) * up))
        rows.append(row)
    return torch.stack(rows) if rows else 0 * x


# What each token chose of 5 experts.
CHOICES = {
    "mixed": [[0, 4], [2, 0], [1, 3], [4, 2], [3, 0], [2, 1], [0, 1]],
    "experts without tokens": [[1, 3], [3, 1], [1, 3]],
    "all to one expert": [[2], [2], [2], [2]],
    "all experts": [[3, 1, 0, 4, 2], [0, 1, 2, 3, 4]],
    "without expert": [[0, 1], [-1, -1], [4, -1], [-1, 2]],
    "none at all": [[-1, -1], [-1, -1]],
    "twice the same": [[1, 1], [0, 1]],
    "one token": [[4, 0]],
}


@pytest.mark.parametrize("chosen", CHOICES.values(), ids=CHOICES)
def test_matches_a_dense_loop(chosen: list[list[int]]) -> None:
    x, routing, weights = tokens_of(len(chosen), 6), routing_of(chosen, 5), layer(5, 6, 4)
    got, want = experts(x, routing, *weights), dense(x, routing, *weights)
    torch.testing.assert_close(got, want, rtol=0, atol=EXPERTS_FP64)
    inputs, dy = (x, routing.weights, *weights), torch.randn(want.shape, dtype=F64)
    grads = zip(torch.autograd.grad(got, inputs, dy), grad_or_zero(want, inputs, dy), strict=True)
    for ours, exact in grads:
        torch.testing.assert_close(ours, exact, rtol=0, atol=EXPERTS_FP64)


def grad_or_zero(y: Tensor, inputs: tuple[Tensor, ...], dy: Tensor) -> list[Tensor]:
    grads = torch.autograd.grad(y, inputs, dy, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, grads, strict=True)]


def test_gradcheck_through_the_router() -> None:
    logits = torch.randn(4, 5, dtype=F64, generator=torch.Generator().manual_seed(4), requires_grad=True)
    valid = torch.tensor([True, True, False, True])

    def layer_of(x: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        routing = route(logits, torch.zeros(5), top_k=2, valid=valid)
        return experts(x, routing, gate_up, down)

    assert torch.autograd.gradcheck(layer_of, (tokens_of(4, 3), logits, *layer(5, 3, 2)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matches_transformers(dtype: torch.dtype) -> None:
    """Eager rounds each product and each partial sum to bf16, we round the sum once: no worse is asked."""
    modeling = pytest.importorskip("transformers.models.glm4v_moe.modeling_glm4v_moe")
    config = modeling.Glm4vMoeTextConfig(hidden_size=32, moe_intermediate_size=24, num_local_experts=8)
    config._experts_implementation = "eager"
    theirs = modeling.Glm4vMoeTextExperts(config).to(dtype)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    routing = route(torch.randn(20, 8), torch.zeros(8), top_k=3)
    routing.weights.requires_grad_()
    inputs = (tokens_of(20, 32, dtype), routing.weights, theirs.gate_up_proj, theirs.down_proj)
    ours = experts(inputs[0], routing, *inputs[2:])
    hf = theirs(inputs[0], routing.experts.long(), routing.weights)
    true = dense(inputs[0], routing, *inputs[2:])
    assert ours.dtype == dtype
    dy = torch.randn(20, 32).to(dtype)
    results = [[y.detach(), *torch.autograd.grad(y, inputs, dy.to(y.dtype))] for y in (ours, hf, true)]
    for got, want, exact in zip(*results, strict=True):
        if dtype == torch.float32:
            tolerance = EXPERTS_FP32 * float(exact.abs().max())
            torch.testing.assert_close(got, want, rtol=0, atol=tolerance)
        else:
            assert_error_relative(got, exact, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_rounds_the_sum_once(dtype: torch.dtype) -> None:
    """K = 8 choices of one expert: 8 equal terms of weight 1/8 must give the term, not 8 roundings of it."""
    x, weights = tokens_of(16, 32, dtype), layer(2, 32, 24, dtype)
    eight = Routing(torch.full((16, 8), 0.125), torch.ones(16, 8, dtype=torch.int32), torch.tensor([0, 128]))
    once = Routing(torch.ones(16, 1), torch.ones(16, 1, dtype=torch.int32), torch.tensor([0, 16]))
    assert torch.equal(experts(x, eight, *weights), experts(x, once, *weights))


def test_weight_gradient_is_a_dot_product_in_fp32() -> None:
    """Of bf16 rows, against the same dot product in fp64: a bf16 product would be off by 1 part in 500."""
    slots, rows, _ = sort_slots(torch.tensor([[1, 0], [0, -1]], dtype=torch.int32), 2)
    dy, ys, weights = torch.randn(2, 64).bfloat16(), torch.randn(4, 64).bfloat16(), torch.ones(2, 2)
    _, dweights = torch.ops.glmv.experts_unpermute_bwd(dy, ys, weights, slots, rows, "ref")
    exact = [[float(dy[t].double() @ ys[row].double()) for row in rows[t]] for t in (0, 1)]
    exact[1][1] = 0.0  # no expert
    torch.testing.assert_close(dweights, torch.tensor(exact), rtol=0, atol=64 * EXPERTS_FP32)


def test_does_not_read_counts() -> None:
    x, routing, weights = tokens_of(7, 6), routing_of(CHOICES["mixed"], 5), layer(5, 6, 4)
    want = experts(x, routing, *weights)
    summed_over_ranks = routing._replace(counts=routing.counts * 4)
    assert torch.equal(experts(x, summed_over_ranks, *weights), want)


def test_nan_of_a_row_without_expert_stays_there() -> None:
    x, routing, weights = tokens_of(4, 6), routing_of(CHOICES["without expert"], 5), layer(5, 6, 4)
    clean, dy = experts(x, routing, *weights), torch.randn(4, 6, dtype=F64)
    poisoned = x.detach().clone()
    poisoned[1] = torch.nan
    poisoned.requires_grad_()
    got = experts(poisoned, routing, *weights)
    assert torch.equal(got, clean)
    assert torch.equal(got[1], torch.zeros(6, dtype=F64))
    for ours, want in zip(
        torch.autograd.grad(got, (poisoned, routing.weights, *weights), dy),
        torch.autograd.grad(clean, (x, routing.weights, *weights), dy),
        strict=True,
    ):
        assert torch.equal(ours, want)


def test_deterministic_for_any_number_of_threads() -> None:
    x, weights = tokens_of(300, 48, torch.float32), layer(8, 48, 24, torch.float32)
    routing = route(torch.randn(300, 8), torch.zeros(8), top_k=4)
    num_threads, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 1, 2):
            torch.set_num_threads(threads)
            y = experts(x, routing, *weights)
            results.append((y, *torch.autograd.grad(y.square().sum(), (x, *weights))))
    finally:
        torch.set_num_threads(num_threads)
    assert all(torch.equal(a, b) for r in results[1:] for a, b in zip(results[0], r, strict=True))


def test_sort_slots_by_hand() -> None:
    """Slots 0..5 choose 2, 0, -1, 2, 0, 1: rows are slots 1, 4 (expert 0), 5 (1), 0, 3 (2), then 2 (none)."""
    chosen = torch.tensor([[2, 0], [-1, 2], [0, 1]], dtype=torch.int32)
    slot_of_row, row_of_slot, ends = sort_slots(chosen, 4)
    assert slot_of_row.tolist() == [1, 4, 5, 0, 3, 2]
    assert row_of_slot.tolist() == [[3, 0], [-1, 4], [1, 2]]
    assert ends.tolist() == [2, 3, 5, 5]


@pytest.mark.parametrize("frozen", ["x", "weights", "gate_up", "down"])
def test_frozen_inputs(frozen: str) -> None:
    x, routing, (gate_up, down) = tokens_of(7, 6), routing_of(CHOICES["mixed"], 5), layer(5, 6, 4)
    inputs = {"x": x, "weights": routing.weights, "gate_up": gate_up, "down": down}
    want = dict(zip(inputs, torch.autograd.grad(experts(x, routing, gate_up, down).sum(), inputs.values())))
    inputs[frozen].requires_grad_(False)
    live = [name for name in inputs if name != frozen]
    y = experts(x, routing, gate_up, down)
    grads = torch.autograd.grad(y.sum(), [inputs[name] for name in live])
    assert all(torch.equal(g, want[name]) for name, g in zip(live, grads, strict=True))


def test_strided_inputs() -> None:
    x, routing, (gate_up, down) = tokens_of(7, 6), routing_of(CHOICES["mixed"], 5), layer(5, 6, 4)
    strided = (
        x.detach().T.contiguous().T,
        routing._replace(weights=routing.weights.detach().T.contiguous().T, experts=routing.experts.long()),
        gate_up.detach().transpose(0, 2).contiguous().transpose(0, 2),
        down.detach().transpose(1, 2).contiguous().transpose(1, 2),
    )
    want = experts(x, routing, gate_up, down)
    torch.testing.assert_close(experts(*strided), want, rtol=0, atol=EXPERTS_FP64)


def test_no_tokens() -> None:
    x, weights = torch.zeros(0, 6, requires_grad=True), layer(5, 6, 4, torch.float32)
    y = experts(x, route(torch.zeros(0, 5), torch.zeros(5), top_k=2), *weights)
    assert y.shape == (0, 6)
    dx, *dweights = torch.autograd.grad(y.sum(), (x, *weights))
    assert dx.shape == (0, 6)
    assert all(torch.equal(g, torch.zeros_like(g)) for g in dweights)


X, GATE_UP, DOWN = torch.zeros(3, 6), torch.zeros(5, 8, 6), torch.zeros(5, 6, 4)
ROUTING = Routing(torch.zeros(3, 2), torch.zeros(3, 2, dtype=torch.int32), torch.zeros(5, dtype=torch.int32))
ERRORS = [
    ({"x": torch.zeros(3)}, ValueError, "experts: x must be [T, C] float32|"),
    ({"x": X.int()}, TypeError, "x must be [T, C] float32|"),
    (
        {"gate_up": torch.zeros(5, 8, 7)},
        ValueError,
        "gate_up must be [E, 2I, C=6] float32 on cpu, got [5, 8, 7]",
    ),
    ({"gate_up": GATE_UP.double()}, TypeError, "gate_up must be [E, 2I, C=6] float32 on cpu, got [5, 8, 6]"),
    ({"gate_up": torch.zeros(5, 7, 6)}, ValueError, "gate_up must be [E, 2I, C] with an even 2I"),
    ({"down": torch.zeros(5, 4, 6)}, ValueError, "down must be [E=5, C=6, I=4] float32 on cpu"),
    ({"down": torch.zeros(4, 6, 4)}, ValueError, "down must be [E=5, C=6, I=4] float32 on cpu"),
    ({"weights": torch.zeros(2, 2)}, ValueError, "routing.weights must be [T=3, K] float32|float64 on cpu"),
    (
        {"weights": torch.zeros(3, 2).bfloat16()},
        TypeError,
        "routing.weights must be [T=3, K] float32|float64",
    ),
    (
        {"experts": torch.zeros(3, 3, dtype=torch.int32)},
        ValueError,
        "routing.experts must be [T=3, K=2] int32",
    ),
    ({"experts": torch.zeros(3, 2)}, TypeError, "routing.experts must be [T=3, K=2] int32|int64 on cpu"),
    (
        {"experts": torch.full((3, 2), 5)},
        ValueError,
        "routing.experts must be in [-1, E - 1 = 4], got (5, 5)",
    ),
    (
        {"experts": torch.full((3, 2), -2)},
        ValueError,
        "routing.experts must be in [-1, E - 1 = 4], got (-2, -2)",
    ),
    ({"backend": "native"}, BackendError, "experts has no native backend"),
]


@pytest.mark.parametrize(("change", "kind", "message"), ERRORS, ids=map(str, range(len(ERRORS))))
def test_errors(change: dict[str, object], kind: type[Exception], message: str) -> None:
    routing = ROUTING._replace(**{name: change[name] for name in ("weights", "experts") if name in change})
    arguments = {"x": X, "routing": routing, "gate_up": GATE_UP, "down": DOWN}
    arguments |= {name: value for name, value in change.items() if name not in ("weights", "experts")}
    with pytest.raises(kind, match=re.escape(message)):
        experts(**arguments)  # type: ignore[arg-type]


# ---- registration, compile -----------------------------------------------------------------------------


def test_opcheck() -> None:
    routing = routing_of(CHOICES["without expert"], 5, torch.float32)
    slots, rows, ends = sort_slots(routing.experts, 5)
    xs, weight = torch.randn(8, 6, requires_grad=True), torch.randn(5, 3, 6, requires_grad=True)
    low, dy = torch.randn(4, 6).bfloat16(), torch.randn(4, 6)
    calls = {
        "permute_fwd": (low.detach().requires_grad_(), slots, rows, "ref"),
        "permute_bwd": (torch.randn(8, 6).bfloat16(), rows, "ref"),
        "unpermute_fwd": (xs, routing.weights, slots, rows, "ref"),
        "unpermute_bwd": (dy, xs.detach(), routing.weights.detach(), slots, rows, "ref"),
        "gemm_fwd": (xs, weight, ends),
        "gemm_dweight": (torch.randn(8, 3), xs.detach(), ends),
    }
    for name, arguments in calls.items():
        torch.library.opcheck(getattr(torch.ops.glmv, f"experts_{name}").default, arguments)


def test_compiles_as_one_graph() -> None:
    x, weights = tokens_of(9, 6, torch.float32), layer(5, 6, 4, torch.float32)
    logits = torch.randn(9, 5, requires_grad=True)

    def f(x: Tensor, logits: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
        return experts(x, route(logits, torch.zeros(5), top_k=2), gate_up, down)

    inputs = (x, logits, *weights)
    got, want = torch.compile(f, fullgraph=True, backend="aot_eager")(*inputs), f(*inputs)
    assert torch.equal(got, want)
    assert last_backend("experts") == "ref"
    dy = torch.randn(9, 6)
    for a, b in zip(torch.autograd.grad(got, inputs, dy), torch.autograd.grad(want, inputs, dy), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=EXPERTS_FP32)
