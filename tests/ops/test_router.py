"""route against a plain loop over tokens, transformers' router and the bugs of other routers."""

import math
import re

import pytest
import torch
from torch import Tensor

from glmv.backend import BackendError, last_backend
from glmv.ops.router import Routing, route
from tests.numeric import ROUTER_FP32_REL, ROUTER_FP64

F64 = torch.float64


def make(
    tokens: int, experts: int, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(tokens, experts, generator=g, dtype=F64)
    bias = 0.1 * torch.randn(experts, generator=g, dtype=F64)
    return logits.to(dtype), bias.to(F64 if dtype == F64 else torch.float32)


def one_token(
    logits: list[float],
    bias: list[float],
    top_k: int,
    groups: int = 1,
    top_groups: int = 1,
    normalize: bool = True,
    scale: float = 1.0,
) -> tuple[list[float], list[int]]:
    """The definition, in Python floats: no tensor, no sort of a tensor."""
    scores = [1 / (1 + math.exp(-x)) for x in logits]
    choice = [s + b for s, b in zip(scores, bias, strict=True)]
    size = len(choice) // groups
    group_scores = [sum(sorted(choice[g * size : (g + 1) * size])[-2:]) for g in range(groups)]
    best = sorted(range(groups), key=lambda g: (-group_scores[g], g))[:top_groups]
    allowed = [e for e in range(len(choice)) if e // size in best]
    chosen = sorted(allowed, key=lambda e: (-choice[e], e))[:top_k]
    total = sum(scores[e] for e in chosen) if normalize else 1.0
    return [scale * scores[e] / total for e in chosen], chosen


# ---- against independent truth -------------------------------------------------------------------------

# E, K, groups, top_groups; the first is GLM-4.5V's, the second GLM-4.5's, then k == E and single groups.
SHAPES = [
    (128, 8, 1, 1),
    (160, 8, 1, 1),
    (128, 8, 4, 2),
    (8, 8, 1, 1),
    (6, 1, 1, 1),
    (12, 6, 4, 2),
    (4, 2, 4, 3),
]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("experts", "top_k", "groups", "top_groups"), SHAPES)
def test_matches_a_loop_over_tokens(
    experts: int, top_k: int, groups: int, top_groups: int, normalize: bool
) -> None:
    logits, bias = make(33, experts, F64)
    options = {
        "top_k": top_k,
        "groups": groups,
        "top_groups": top_groups,
        "normalize": normalize,
        "scale": 2.5,
    }
    got = route(logits, bias, **options)
    rows = [one_token(row, bias.tolist(), **options) for row in logits.tolist()]
    assert got.experts.tolist() == [chosen for _, chosen in rows]
    assert got.experts.dtype == got.counts.dtype == torch.int32
    want = torch.tensor([weights for weights, _ in rows], dtype=F64)
    torch.testing.assert_close(got.weights, want, rtol=ROUTER_FP64, atol=0)
    assert got.counts.tolist() == [sum(chosen.count(e) for _, chosen in rows) for e in range(experts)]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (4, 2)])
def test_matches_transformers(groups: int, top_groups: int, normalize: bool) -> None:
    modeling = pytest.importorskip("transformers.models.glm4v_moe.modeling_glm4v_moe")
    config = modeling.Glm4vMoeTextConfig(
        hidden_size=16,
        num_local_experts=32,
        n_routed_experts=32,
        num_experts_per_tok=8,
        n_group=groups,
        topk_group=top_groups,
        norm_topk_prob=normalize,
        routed_scaling_factor=2.5,
    )
    theirs = modeling.Glm4vMoeTextTopkRouter(config)
    torch.nn.init.normal_(theirs.weight)
    torch.nn.init.normal_(theirs.e_score_correction_bias, std=0.1)
    logits, weights, experts = theirs(torch.randn(50, 16))
    got = route(
        logits,
        theirs.e_score_correction_bias,
        top_k=8,
        groups=groups,
        top_groups=top_groups,
        normalize=normalize,
        scale=2.5,
    )
    order = experts.argsort(1)
    ours = got.experts.argsort(1)
    assert torch.equal(got.experts.gather(1, ours).long(), experts.gather(1, order))
    torch.testing.assert_close(
        got.weights.gather(1, ours), weights.gather(1, order), rtol=ROUTER_FP32_REL, atol=0
    )
    dweights = torch.randn(50, 32)  # by expert number, so that the order within a row does not matter
    dgot, dwant = (
        torch.autograd.grad(w, logits, dweights.gather(1, e.long()), retain_graph=True)[0]
        for w, e in ((got.weights, got.experts), (weights, experts))
    )
    torch.testing.assert_close(dgot, dwant, rtol=ROUTER_FP32_REL, atol=ROUTER_FP32_REL)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("top_k", [1, 3])
def test_gradcheck(top_k: int, normalize: bool) -> None:
    logits, bias = make(5, 8, F64)
    valid = torch.tensor([True, True, False, True, True])

    def weights(logits: Tensor) -> Tensor:
        options = {"groups": 2, "top_groups": 1, "normalize": normalize, "scale": 2.5}
        return route(logits, bias, top_k=top_k, valid=valid, **options).weights

    assert torch.autograd.gradcheck(weights, (logits.requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_logits_compute_in_fp32(dtype: torch.dtype) -> None:
    logits, bias = make(20, 16, dtype)
    got, want = route(logits, bias, top_k=4), route(logits.float(), bias, top_k=4)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


# ---- ties, extreme values ------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (4, 2)])
def test_ties_go_to_the_lowest_index(groups: int, top_groups: int) -> None:
    """Including a tie of +0 and -0, and ties between groups."""
    logits, bias = torch.zeros(3, 32), torch.zeros(32)
    bias[::2] = -0.0
    got = route(logits, bias, top_k=8, groups=groups, top_groups=top_groups)
    assert got.experts.tolist() == [list(range(8))] * 3


def test_selection_order_is_by_score_with_bias_not_by_weight() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -9.0]])
    got = route(logits, torch.tensor([0.9, 0.0, 0.0, 0.0]), top_k=3, normalize=False)
    assert got.experts.tolist() == [[0, 2, 1]]
    torch.testing.assert_close(got.weights, logits[:, [0, 2, 1]].sigmoid())


def test_infinite_logits() -> None:
    logits = torch.tensor([[-math.inf, 0.0, math.inf, -math.inf]], requires_grad=True)
    got = route(logits, torch.zeros(4), top_k=3)
    assert got.experts.tolist() == [[2, 1, 0]]
    torch.testing.assert_close(got.weights, torch.tensor([[2 / 3, 1 / 3, 0.0]]))
    (dlogits,) = torch.autograd.grad(got.weights, logits, torch.tensor([[1.0, 0.0, 5.0]]))
    assert dlogits.isfinite().all()
    # w_0 = 1 / 1.5 falls by 1 / 1.5^2 per unit of s_1, and s_1 grows by 1/4 per unit of its logit.
    torch.testing.assert_close(dlogits, torch.tensor([[0.0, -1 / 9, 0.0, 0.0]]))


def test_one_expert_in_one_group() -> None:
    got = route(torch.tensor([[0.3], [-4.0]]), torch.zeros(1), top_k=1, scale=2.5)
    assert got.experts.tolist() == [[0], [0]]
    torch.testing.assert_close(got.weights, torch.full((2, 1), 2.5))
    assert got.counts.tolist() == [2]


# ---- bugs of other routers -----------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [-3.0, -8.0, 7.0])
def test_sglang_3705_masked_groups_lose_to_negative_scores(offset: float) -> None:
    """Also deepseek-ai/DeepSeek-V3#741, transformers#45441, vllm#31478: masked as 0 or -1, they won."""
    logits, bias = make(40, 32)
    options = {"top_k": 8, "groups": 4, "top_groups": 1}
    got = route(logits, bias + offset, **options)
    assert bool((got.experts // 8 == got.experts[:, :1] // 8).all())
    for row, chosen in zip(logits.tolist(), got.experts.tolist(), strict=True):
        assert chosen == one_token(row, (bias + offset).tolist(), **options)[1]


def test_flashinfer_3946_all_very_negative_logits_give_no_nan() -> None:
    """Also flashinfer#3803: the scores underflow and their sum is 0."""
    for value in (-100.0, -1000.0, -math.inf):
        logits = torch.full((2, 16), value, requires_grad=True)
        got = route(logits, torch.zeros(16), top_k=8)
        assert got.experts.tolist() == [list(range(8))] * 2
        assert got.weights.isfinite().all()
        (dlogits,) = torch.autograd.grad(got.weights, logits, torch.randn(2, 8))
        assert dlogits.isfinite().all()


@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (4, 2)])
def test_vllm_39391_nan_rows_get_distinct_experts(groups: int, top_groups: int) -> None:
    logits, bias = make(4, 16)
    logits[1] = math.nan
    logits[2, 3:9] = math.nan
    got = route(logits, bias, top_k=8, groups=groups, top_groups=top_groups)
    assert all(len(set(row)) == 8 for row in got.experts.tolist())
    assert 0 <= int(got.experts.min()) <= int(got.experts.max()) < 16
    assert got.weights[[1, 2]].isnan().any(1).all()  # a NaN is seen, not hidden
    assert got.weights[[0, 3]].isfinite().all()
    assert int(got.counts.sum()) == 32


def test_vllm_metax_284_weights_have_no_bias() -> None:
    """At GLM-4.5V's own shape a kernel returned the scores with bias."""
    logits, bias = make(5, 128)
    got = route(logits, bias + 7.0, top_k=8, normalize=False)
    torch.testing.assert_close(got.weights, logits.sigmoid().gather(1, got.experts.long()))


def test_transformers_normalises_a_single_expert() -> None:
    logits, bias = make(5, 16)
    assert torch.equal(route(logits, bias, top_k=1, scale=2.5).weights, torch.full((5, 1), 2.5))


# ---- padding, replay -----------------------------------------------------------------------------------


def test_invalid_rows_are_left_out() -> None:
    logits, bias = make(6, 16)
    valid = torch.tensor([True, False, True, True, False, True])
    poisoned = logits.clone()
    poisoned[~valid] = math.nan
    poisoned.requires_grad_()
    got, kept = route(poisoned, bias, top_k=4, valid=valid), route(logits[valid], bias, top_k=4)
    assert torch.equal(got.experts[valid], kept.experts)
    assert torch.equal(got.weights[valid], kept.weights)
    assert torch.equal(got.counts, kept.counts)
    assert torch.equal(got.experts[~valid], torch.full((2, 4), -1, dtype=torch.int32))
    assert torch.equal(got.weights[~valid], torch.zeros(2, 4))
    (dlogits,) = torch.autograd.grad(
        got.weights, poisoned, torch.full((6, 4), math.nan)[:, :1] + torch.ones(4)
    )
    assert torch.equal(dlogits[~valid], torch.zeros(2, 16))


def test_replay_of_its_own_choice_changes_nothing() -> None:
    logits, bias = make(9, 16)
    logits.requires_grad_()
    valid = torch.arange(9) != 4
    free = route(logits, bias, top_k=4, valid=valid)
    replayed = route(logits, bias, top_k=4, replay=free.experts)  # carries the -1 of row 4
    assert all(torch.equal(a, b) for a, b in zip(free, replayed, strict=True))
    dweights = torch.randn(9, 4)
    (dfree,) = torch.autograd.grad(free.weights, logits, dweights)
    (dreplayed,) = torch.autograd.grad(replayed.weights, logits, dweights)
    assert torch.equal(dfree, dreplayed)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_replay_takes_other_experts_with_live_weights(dtype: torch.dtype) -> None:
    """Megatron-LM#2101: the rollout's experts, the trainer's scores and gradient."""
    logits, bias = make(3, 6, F64)
    logits.requires_grad_()
    replay = torch.tensor([[5, 0], [1, 2], [3, -1]], dtype=dtype)
    got = route(logits, bias, top_k=2, replay=replay, scale=2.0)
    assert torch.equal(got.experts, replay.int())
    assert got.experts.data_ptr() != replay.data_ptr()
    s = logits.sigmoid()
    a, b = s[[0, 1, 2], [5, 1, 3]], torch.stack((s[0, 0], s[1, 2], torch.zeros((), dtype=F64)))
    want = 2 * torch.stack((a, b), 1) / (a + b).unsqueeze(1)
    torch.testing.assert_close(got.weights, want, rtol=ROUTER_FP64, atol=0)
    assert got.counts.tolist() == [1, 1, 1, 1, 0, 1]
    dweights = torch.randn(3, 2, dtype=F64)
    (dgot,), (dwant,) = (torch.autograd.grad(w, logits, dweights) for w in (got.weights, want))
    torch.testing.assert_close(dgot, dwant, rtol=ROUTER_FP64, atol=ROUTER_FP64)


# ---- layouts, empty, errors ----------------------------------------------------------------------------


def test_strided_logits_and_gradients() -> None:
    logits, bias = make(16, 9)
    strided = logits.T.contiguous().T.requires_grad_()
    packed = logits.clone().requires_grad_()
    replay = torch.randint(0, 9, (3, 16)).T
    for options in ({"groups": 3, "top_groups": 2}, {"replay": replay}):
        got, want = (route(x, bias, top_k=3, **options) for x in (strided, packed))
        assert torch.equal(got.experts, want.experts)
        assert got.experts.is_contiguous()
        torch.testing.assert_close(got.weights, want.weights, rtol=ROUTER_FP32_REL, atol=0)
        (dgot,) = torch.autograd.grad(got.weights[:, 1].sum(), strided)
        (dwant,) = torch.autograd.grad(want.weights[:, 1].sum(), packed)
        torch.testing.assert_close(dgot, dwant, rtol=ROUTER_FP32_REL, atol=ROUTER_FP32_REL)


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_token_and_one(tokens: int) -> None:
    logits, bias = make(tokens, 16)
    logits.requires_grad_()
    got = route(logits, bias, groups=4, top_groups=2)
    assert got.weights.shape == got.experts.shape == (tokens, 8)
    assert int(got.counts.sum()) == 8 * tokens
    (dlogits,) = torch.autograd.grad(got.weights.sum(), logits)
    torch.testing.assert_close(dlogits, torch.zeros(tokens, 16))  # the weights sum to 1 anyway


LOGITS, BIAS = torch.zeros(4, 12), torch.zeros(12)
ERRORS = [
    ({"logits": torch.zeros(12)}, ValueError, "route: logits must be [T, E] float32|"),
    ({"logits": LOGITS.int()}, TypeError, "got [4, 12] int32 on cpu"),
    ({"bias": torch.zeros(11)}, ValueError, "bias must be [E=12] float32 on cpu, got [11] float32 on cpu"),
    ({"bias": BIAS.bfloat16()}, TypeError, "bias must be [E=12] float32 on cpu, got [12] bfloat16"),
    ({"bias": BIAS.double()}, TypeError, "bias must be [E=12] float32 on cpu"),
    ({"groups": 5}, ValueError, "groups must be a divisor of E=12, got 5 (int)"),
    ({"groups": 0}, ValueError, "groups must be a divisor of E=12"),
    ({"groups": 4, "top_groups": 5}, ValueError, "top_groups must be in [1, groups=4], got 5 (int)"),
    ({"top_groups": 0}, ValueError, "top_groups must be in [1, groups=1]"),
    ({"top_k": 13}, ValueError, "top_k must be in [1, E * top_groups / groups = 12], got 13 (int)"),
    ({"top_k": 0}, ValueError, "top_k must be in [1,"),
    (
        {"groups": 4, "top_groups": 2, "top_k": 7},
        ValueError,
        "top_k must be in [1, E * top_groups / groups = 6]",
    ),
    ({"valid": torch.ones(3, dtype=torch.bool)}, ValueError, "valid must be [T=4] bool on cpu"),
    ({"valid": torch.ones(4)}, TypeError, "valid must be [T=4] bool on cpu, got [4] float32"),
    ({"replay": torch.zeros(4, 7, dtype=torch.int32)}, ValueError, "replay must be [T=4, K=8] int32|int64"),
    ({"replay": torch.zeros(4, 8)}, TypeError, "replay must be [T=4, K=8] int32|int64"),
    ({"replay": torch.full((4, 8), 12)}, ValueError, "replay must be in [-1, E - 1 = 11], got (12, 12)"),
    ({"replay": torch.full((4, 8), -2)}, ValueError, "replay must be in [-1, E - 1 = 11], got (-2, -2)"),
    ({"backend": "triton"}, BackendError, "router has no triton backend"),
]


@pytest.mark.parametrize(("change", "kind", "message"), ERRORS, ids=[str(i) for i in range(len(ERRORS))])
def test_errors(change: dict[str, object], kind: type[Exception], message: str) -> None:
    arguments = {"logits": LOGITS, "bias": BIAS} | change
    with pytest.raises(kind, match=re.escape(message)):
        route(**arguments)  # type: ignore[arg-type]


# ---- registration, compile -----------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_opcheck(dtype: torch.dtype) -> None:
    logits, bias = make(6, 8, dtype)
    logits.requires_grad_()
    valid = torch.arange(6) != 2
    replay = torch.randint(0, 8, (6, 3))
    for tail in ((None, None), (valid, None), (valid, replay)):
        torch.library.opcheck(
            torch.ops.glmv.router_fwd.default, (logits, bias, 3, 4, 2, True, 2.5, *tail, "ref")
        )
    torch.library.opcheck(
        torch.ops.glmv.router_bwd.default,
        (torch.randn(6, 3), logits.detach(), replay.int(), True, 2.5, "ref"),
    )


def test_compiles_as_one_graph() -> None:
    logits, bias = make(6, 8)
    logits.requires_grad_()

    def f(logits: Tensor) -> Routing:
        return route(logits, bias, top_k=3, groups=4, top_groups=2, valid=torch.arange(6) != 2)

    got, want = torch.compile(f, fullgraph=True, backend="aot_eager")(logits), f(logits)
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    assert last_backend("router") == "ref"
    dweights = torch.randn(6, 3)
    (dgot,), (dwant,) = (torch.autograd.grad(r.weights, logits, dweights) for r in (got, want))
    assert torch.equal(dgot, dwant)
