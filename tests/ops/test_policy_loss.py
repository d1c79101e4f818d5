"""policy_loss against hand numbers and against masked, padded tensors under autograd."""

import math
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import ops
from glmv.ops.policy_loss import PolicyLoss
from tests.numeric import POLICY_FP32, POLICY_FP64
from tests.ops.attention_oracle import cu
from tests.ops.policy_oracle import LENGTHS, NAMES, M, S, complete, make, plain_loss

F64 = torch.float64


def tensor(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


def one_row(ratio: float, adv: float, **options: Any) -> tuple[float, float]:
    """Loss and gradient by logp of a single row."""
    logp = tensor(math.log(ratio)).requires_grad_()
    out = ops.policy_loss(logp, tensor(0.0), tensor(adv), cu([1]), denom=1, **options)
    (slope,) = torch.autograd.grad(out.loss, logp)
    return out.loss.item(), slope.item()


# ---- 1. hand numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "adv", "loss", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.25, 2.0, -2.5, -2.5),  # between 1 and 1 + eps_high
        (1.5, 2.0, -2.56, 0.0),  # over the upper bound: 1.28 * 2
        (0.5, 2.0, -1.0, -1.0),  # a good row that became rare is pushed up in full
        (0.9, -2.0, 1.8, 1.8),
        (0.5, -2.0, 1.6, 0.0),  # under the lower bound: 0.8 * 2
        (1.5, -2.0, 3.0, 3.0),  # a bad row that became frequent is pushed down in full
        (4.0, -2.0, 8.0, 8.0),
        (4.0, 0.0, 0.0, 0.0),
    ],
)
def test_clip(ratio: float, adv: float, loss: float, slope: float) -> None:
    got = one_row(ratio, adv)
    assert abs(got[0] - loss) < POLICY_FP64
    assert abs(got[1] - slope) < POLICY_FP64


@pytest.mark.parametrize(
    ("ratio", "adv", "loss", "slope"),
    [(2.5, -2.0, 5.0, 5.0), (4.0, -2.0, 6.0, 0.0), (4.0, 2.0, -2.56, 0.0), (0.5, -2.0, 1.6, 0.0)],
)
def test_dual_clip(ratio: float, adv: float, loss: float, slope: float) -> None:
    """At most 3 |A| for bad rows."""
    got = one_row(ratio, adv, dual_clip=3.0)
    assert abs(got[0] - loss) < POLICY_FP64
    assert abs(got[1] - slope) < POLICY_FP64


@pytest.mark.parametrize(
    ("ratio", "adv", "slope"), [(0.1, 2.0, -0.2), (1.2, 2.0, -2.4), (4.0, 2.0, -2.56), (4.0, -2.0, 2.56)]
)
def test_cispo(ratio: float, adv: float, slope: float) -> None:
    """The weight is capped, the gradient of the row stays."""
    got = one_row(ratio, adv, objective="cispo")
    assert abs(got[1] - slope) < POLICY_FP64
    assert abs(got[0] - slope * math.log(ratio)) < POLICY_FP64


@pytest.mark.parametrize("adv", [1.0, -1.0])
@pytest.mark.parametrize("bounds", [{"eps_low": 0.0, "eps_high": 0.0}, {"eps_low": 0.0, "eps_high": 0.5}])
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_the_gradient_passes_on_a_bound(adv: float, bounds: dict[str, float], level: str) -> None:
    """r = 1 exactly on the bound(s): an exclusive comparison would drop the gradient or halve it."""
    assert one_row(1.0, adv, **bounds, level=level) == (-adv, -adv)
    assert one_row(1.0, adv, objective="cispo", eps_high=0.0)[1] == -adv


def test_gspo_by_hand() -> None:
    """dL/dlogp_t = -A s / n with s the ratio of the sequence; nothing for the clipped one."""
    logp = torch.zeros(5, dtype=F64, requires_grad=True)
    logp_old = -tensor(0.3, 0.1, 0.2, 1.0, 0.0)
    out = ops.policy_loss(
        logp, logp_old, tensor(2.0, 1.0), cu([3, 2]), denom=2, level="sequence", eps_low=0.3, eps_high=0.4
    )
    s = math.exp(0.2)
    assert abs(out.loss.item() - (-2 * s - 1.4) / 2) < POLICY_FP64
    (grad,) = torch.autograd.grad(out.loss, logp)
    assert (grad - tensor(*[-2 * s / 3 / 2] * 3, 0.0, 0.0)).abs().max() < POLICY_FP64


def test_kl_weight_and_entropy_by_hand() -> None:
    logp = tensor(-1.0, -1.0).requires_grad_()
    ent = tensor(0.5, 0.25).requires_grad_()
    out = ops.policy_loss(
        logp, None, tensor(2.0), cu([2]), denom=4, agg="token", weight=tensor(1.0, 0.5),
        logp_ref=logp.detach() + tensor(0.0, 0.7), kl_coef=0.1, ent=ent, entropy_coef=0.2,
    )  # fmt: skip
    kl = math.exp(0.7) - 0.7 - 1
    assert abs(out.loss.item() - (-2 - 1 + 0.1 * kl - 0.2 * 0.75) / 4) < POLICY_FP64
    grad, grad_ent = torch.autograd.grad(out.loss, (logp, ent))
    assert (grad - tensor(-2.0, -1.0 + 0.1 * (1 - math.exp(0.7))) / 4).abs().max() < POLICY_FP64
    assert (grad_ent - tensor(-0.05, -0.05)).abs().max() < POLICY_FP64


# ---- 2. every combination of options -------------------------------------------------------------------


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_equals_padded_tensors_under_autograd(names: dict[str, Any]) -> None:
    arguments = make()
    options = complete(names, arguments["logp"])
    ent = torch.rand(M, dtype=F64, requires_grad=True)
    inputs = arguments["logp"], ent
    got = ops.policy_loss(**arguments, **options, ent=ent).loss
    del arguments["cu_seqlens"]
    want = plain_loss(**arguments, **options, ent=ent)
    assert abs(got.item() - want.item()) < POLICY_FP64
    grads = [torch.autograd.grad(x, inputs, allow_unused=True, materialize_grads=True) for x in (got, want)]
    assert max((x - y).abs().max().item() for x, y in zip(*grads, strict=True)) < POLICY_FP64


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_gradcheck(level: str) -> None:
    arguments = make()
    options = complete({"level": level, "dual_clip": 1.5, "weight": True, "kl_coef": 0.1}, arguments["logp"])
    logp, ent = arguments.pop("logp"), torch.rand(M, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, e: ops.policy_loss(x, **arguments, **options, ent=e, entropy_coef=0.3).loss, (logp, ent)
    )


def split(arguments: dict[str, Any], options: dict[str, Any], first: int) -> list[PolicyLoss]:
    """The same rows as two calls: sequences before `first`, and the rest, with the same denom."""
    parts = []
    for sequences in (slice(0, first), slice(first, S)):
        lengths = LENGTHS[sequences]
        rows = slice(sum(LENGTHS[: sequences.start]), sum(LENGTHS[: sequences.stop]))
        cut = {
            name: x[rows] if isinstance(x, Tensor) and x.shape == (M,) else x
            for name, x in (arguments | options).items()
        }
        cut |= {"adv": arguments["adv"][sequences], "cu_seqlens": cu(lengths)}
        parts.append(ops.policy_loss(**cut))
    return parts


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_micro_steps_add_up_to_the_step(names: dict[str, Any]) -> None:
    """Loss, gradient and metrics of parts with the denom of the whole, wherever the cut is."""
    arguments = make(torch.float32)
    options = complete(names, arguments["logp"])
    whole = ops.policy_loss(**arguments, **options, ent=-arguments["logp"])
    (want,) = torch.autograd.grad(whole.loss, arguments["logp"], retain_graph=True)
    for first in (0, 2, 5):
        parts = split(arguments, options | {"ent": -arguments["logp"]}, first)
        total = sum(part.loss for part in parts)
        assert abs((total - whole.loss).item()) < POLICY_FP32
        assert (torch.autograd.grad(total, arguments["logp"])[0] - want).abs().max() < POLICY_FP32
        assert sum(part.rows for part in parts) == whole.rows == M
        assert max(part.ratio_max for part in parts) == whole.ratio_max
        for name, value in whole.metrics.items():
            assert abs(sum(part.metrics[name] for part in parts) - value) < POLICY_FP32


# ---- 3. metrics ----------------------------------------------------------------------------------------


def test_metrics_by_hand() -> None:
    ratio = tensor(0.5, 1.0, 1.5, 4.0)
    logp_ref = ratio.log() + tensor(0.0, 0.0, 0.0, math.log(2))
    for adv, low, high, dual in ((1.0, 0, 2, 0), (-1.0, 1, 0, 1), (0.0, 0, 0, 0)):
        out = ops.policy_loss(
            ratio.log(), torch.zeros(4, dtype=F64), tensor(adv), cu([4]), denom=1, dual_clip=3.0,
            ent=ratio, logp_ref=logp_ref,
        )  # fmt: skip
        want = {
            "clip_low": low,
            "clip_high": high,
            "clip_dual": dual,
            "ratio": 7.0,
            "approx_kl": (ratio - 1 - ratio.log()).sum().item(),
            "kl_ref": 2 - 1 - math.log(2),
            "entropy": 7.0,
        }
        assert out.metrics.keys() == want.keys()
        assert all(abs(out.metrics[name].item() - x) < POLICY_FP64 for name, x in want.items())
        assert out.ratio_max.item() == pytest.approx(4.0, abs=POLICY_FP64)
        assert out.rows.item() == 4
        assert not any(x.requires_grad for x in (*out.metrics.values(), out.ratio_max))


def test_metrics_of_a_sequence_count_its_rows() -> None:
    logp = tensor(0.5, 0.5, 0.5, 0.0)
    out = ops.policy_loss(logp, 0 * logp, tensor(1.0, 1.0), cu([3, 1]), denom=1, level="sequence")
    assert out.metrics["clip_high"].item() == 3
    assert out.rows.item() == 4


# ---- 4. edges ------------------------------------------------------------------------------------------


def test_no_rows() -> None:
    for bounds in ([], [0, 0]):
        logp = torch.zeros(0, requires_grad=True)
        out = ops.policy_loss(logp, logp.detach(), torch.zeros(len(bounds)), cu(bounds), denom=1)
        assert out.loss.item() == out.rows.item() == out.ratio_max.item() == 0
        assert torch.autograd.grad(out.loss, logp)[0].shape == (0,)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_beyond_the_last_bound_count_for_nothing(level: str, bad: float) -> None:
    arguments = make()
    want = ops.policy_loss(**arguments, level=level)
    more = {name: torch.cat((arguments[name].detach(), tensor(bad, bad))) for name in ("logp", "logp_old")}
    more["logp"].requires_grad_()
    got = ops.policy_loss(**(arguments | more), level=level)
    assert torch.equal(got.loss, want.loss)
    assert got.metrics == want.metrics
    assert (got.rows, got.ratio_max) == (want.rows, want.ratio_max)
    (slope,) = torch.autograd.grad(got.loss, more["logp"])
    assert torch.equal(slope[:M], torch.autograd.grad(want.loss, arguments["logp"])[0])


def test_same_policy() -> None:
    """logp_old=None: ratio 1, gradient -A per row, the same as passing logp detached."""
    arguments = make()
    arguments["logp_old"] = None
    out = ops.policy_loss(**arguments, agg="token")
    (slope,) = torch.autograd.grad(out.loss, arguments["logp"])
    adv = arguments["adv"].repeat_interleave(torch.tensor(LENGTHS))
    assert (slope + adv / 3.5).abs().max() < POLICY_FP64
    assert out.metrics["ratio"] == M


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_advantage_per_row(level: str) -> None:
    arguments = make()
    by_sequence = ops.policy_loss(**arguments, level=level).loss
    arguments["adv"] = arguments["adv"].repeat_interleave(torch.tensor(LENGTHS))
    assert torch.equal(ops.policy_loss(**arguments, level=level).loss, by_sequence)


def test_one_advantage_a_sequence_wins_where_sizes_are_equal() -> None:
    """S = M = 2 with an empty first sequence: both rows belong to the second."""
    logp = torch.zeros(2, dtype=F64)
    out = ops.policy_loss(logp, logp, tensor(5.0, 1.0), cu([0, 2]), denom=1)
    assert out.loss.item() == -1.0


@pytest.mark.parametrize("far", [25.0, 1e4])
def test_a_ratio_without_bound_stays_finite(far: float) -> None:
    """exp(log-ratio) would overflow for A < 0, where nothing clips it; over the cap the gradient stops."""
    logp = torch.tensor([far, -far, far], requires_grad=True)
    out = ops.policy_loss(logp, torch.zeros(3), torch.tensor([-1.0, -1.0, 0.0]), cu([1, 1, 1]), denom=1)
    assert out.loss.item() == pytest.approx(math.exp(20), rel=POLICY_FP32)
    assert not torch.autograd.grad(out.loss, logp)[0].any()


def test_denom_is_a_number_or_a_tensor() -> None:
    arguments = make()
    want = ops.policy_loss(**arguments).loss
    arguments["denom"] = torch.tensor(3.5, dtype=F64)
    assert torch.equal(ops.policy_loss(**arguments).loss, want)


# ---- 5. error messages ---------------------------------------------------------------------------------

SHORT = torch.zeros(2, dtype=F64)
MESSAGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "logp": ({"logp": SHORT.half()}, TypeError, "logp must be [M] float32|float64, got [2] float16"),
    "old": (
        {"logp_old": torch.zeros(M)},
        TypeError,
        "logp_old must be [M=13] float64 on cpu, got [13] float32",
    ),
    "adv": ({"adv": SHORT}, ValueError, "adv must be [S=6] float64 on cpu, got [2] float64 on cpu"),
    "no adv": ({"adv": 1.0}, TypeError, "adv must be a tensor, got 1.0 (float)"),
    "weight": ({"weight": SHORT}, ValueError, "weight must be [M=13] float64 on cpu, got [2] float64"),
    "ref": ({"logp_ref": SHORT}, ValueError, "logp_ref must be [M=13] float64 on cpu, got [2] float64"),
    "ent": ({"ent": SHORT}, ValueError, "ent must be [M=13] float64 on cpu, got [2] float64"),
    "bounds": ({"cu_seqlens": cu(LENGTHS).long()}, TypeError, "cu_seqlens must be [S+1] int32 on cpu, got"),
    "no bound": ({"cu_seqlens": cu([])[:0]}, ValueError, "cu_seqlens must be [S+1] with at least one bound"),
    "bounds end": (
        {"cu_seqlens": 2 * cu(LENGTHS)},
        ValueError,
        "must be bounds that end at most at 13, got 26",
    ),
    "denom": ({"denom": 0}, ValueError, "denom must be above 0, got 0 (int)"),
    "objective": ({"objective": "ppo"}, ValueError, "objective must be one of 'clip', 'cispo', got 'ppo'"),
    "level": ({"level": "row"}, ValueError, "level must be one of 'token', 'sequence', got 'row'"),
    "agg": ({"agg": "mean"}, ValueError, "agg must be one of 'sample', 'token', 'constant', got 'mean'"),
    "eps_low": ({"eps_low": 2.0}, ValueError, "eps_low must be within 0 and 1, got 2.0"),
    "eps_high": ({"eps_high": -0.1}, ValueError, "eps_high must be at least 0, got -0.1"),
    "dual_clip": ({"dual_clip": 1.0}, ValueError, "dual_clip must be None or above 1, got 1.0"),
    "kl": ({"kl_coef": 0.1}, ValueError, "kl_coef must be 0 without logp_ref, got 0.1"),
    "entropy": ({"entropy_coef": 0.1}, ValueError, "entropy_coef must be 0 without ent, got 0.1"),
    "cispo": (
        {"objective": "cispo", "level": "sequence"},
        ValueError,
        "level must be 'token' with objective",
    ),
    "dual": ({"objective": "cispo", "dual_clip": 3.0}, ValueError, "dual_clip must be None with objective"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    """No option is ignored: what cannot be combined is refused (TRL 6808, unsloth-zoo 890 ignored some)."""
    wrong, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=re.escape(message)):
        ops.policy_loss(**(make() | wrong))


# ---- 6. compile ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_fullgraph_compile(level: str) -> None:
    arguments = make(torch.float32)

    def step(logp: Tensor) -> tuple[Tensor, Tensor]:
        out = ops.policy_loss(**(arguments | {"logp": logp}), level=level)
        return out.loss, out.metrics["clip_high"]

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    results = [f(arguments["logp"]) for f in (step, compiled)]
    grads = [torch.autograd.grad(loss, arguments["logp"])[0] for loss, _ in results]
    assert torch.equal(*grads)
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
