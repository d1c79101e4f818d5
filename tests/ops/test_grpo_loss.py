"""grpo_loss against linear_logp + policy_loss, and that against log_softmax + padded tensors, elsewhere."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import ops
from glmv.backend import BackendError
from glmv.ops.policy_loss import PolicyLoss
from tests.numeric import (
    POLICY_FP64,
    TOKEN_LOSS_FP32,
    TOKEN_LOSS_GRAD_FP32,
    assert_error_relative,
)
from tests.ops.attention_oracle import cu
from tests.ops.policy_oracle import LENGTHS, NAMES, M, complete, plain_loss
from tests.ops.test_token_loss import largest_allocation, linear_truth, megabytes

V, C = 11, 4


def make(dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """Arguments of grpo_loss, with ratios over both bounds."""
    hidden, weight = torch.randn(M, C, dtype=dtype), torch.randn(V, C, dtype=dtype)
    labels = torch.randint(V, (M,))
    wide = torch.promote_types(dtype, torch.float32)
    logp = linear_truth(hidden.to(wide), weight.to(wide), labels)[0]
    return {
        "hidden": hidden.requires_grad_(),
        "weight": weight.requires_grad_(),
        "labels": labels,
        "logp_old": logp + 0.6 * torch.randn(M, dtype=wide),
        "adv": torch.tensor([1.0, -2.0, -0.5, -1.5, 3.0, 0.7], dtype=wide),
        "cu_seqlens": cu(LENGTHS),
        "denom": 3.5,
    }


def two_steps(
    hidden: Tensor, weight: Tensor, labels: Tensor, temperature: float = 1.0,
    logit_bias: Tensor | None = None, row_weight: Tensor | None = None, **options: Any,
) -> PolicyLoss:  # fmt: skip
    logp, ent = ops.linear_logp(hidden, weight, labels, temperature, logit_bias=logit_bias)
    return ops.policy_loss(logp, ent=ent, weight=row_weight, **options)


def draw(names: dict[str, Any], like: Tensor) -> dict[str, Any]:
    options = complete(dict(names), like)
    return {"row_weight" if name == "weight" else name: x for name, x in options.items()}


def both(arguments: dict[str, Any], **options: Any) -> tuple[PolicyLoss, PolicyLoss]:
    return ops.grpo_loss(**arguments, **options), two_steps(**arguments, **options)


def grads(loss: Tensor, arguments: dict[str, Any]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, (arguments["hidden"], arguments["weight"]), retain_graph=True)


def worst(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> float:
    return max((x - y).abs().max().item() for x, y in zip(got, want, strict=True))


# ---- 1. equal to linear_logp + policy_loss -------------------------------------------------------------


@pytest.mark.parametrize("chunk", [4, 1000])
@pytest.mark.parametrize("names", NAMES, ids=str)
def test_equals_two_steps(names: dict[str, Any], chunk: int) -> None:
    """Loss, gradients scaled by what comes from above, and metrics."""
    arguments = make()
    options = draw(names, arguments["logp_old"]) | {"temperature": 0.8, "logit_bias": torch.randn(V).double()}
    arguments["chunk_mb"] = megabytes(chunk, V)
    got = ops.grpo_loss(**arguments, **options)
    del arguments["chunk_mb"]
    want = two_steps(**arguments, **options)
    assert abs((got.loss - want.loss).item()) < POLICY_FP64
    assert worst(grads(-3 * got.loss, arguments), grads(-3 * want.loss, arguments)) < POLICY_FP64
    assert got.metrics.keys() == want.metrics.keys()
    assert all(abs((got.metrics[name] - x).item()) < POLICY_FP64 for name, x in want.metrics.items())
    assert got.rows == want.rows == M
    assert abs((got.ratio_max - want.ratio_max).item()) < POLICY_FP64


@pytest.mark.parametrize("names", NAMES, ids=str)
def test_fp32(names: dict[str, Any]) -> None:
    arguments = make(torch.float32)
    got, want = both(arguments, **draw(names, arguments["logp_old"]))
    assert got.loss.dtype == torch.float32
    assert abs((got.loss - want.loss).item()) < TOKEN_LOSS_FP32
    assert worst(grads(got.loss, arguments), grads(want.loss, arguments)) < TOKEN_LOSS_GRAD_FP32


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_gradcheck(level: str) -> None:
    arguments = make()
    inputs = arguments.pop("hidden"), arguments.pop("weight")
    options = {"level": level, "entropy_coef": 0.1, "chunk_mb": megabytes(5, V)}
    assert torch.autograd.gradcheck(lambda h, w: ops.grpo_loss(h, w, **arguments, **options).loss, inputs)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype, level: str) -> None:
    low = make(dtype)
    exact = {
        n: x.detach().double() if isinstance(x, Tensor) and x.is_floating_point() else x
        for n, x in low.items()
    }
    for name in ("hidden", "weight"):
        exact[name].requires_grad_()
    got, want = ops.grpo_loss(**low, level=level), two_steps(**exact, level=level)
    logits = (low["hidden"] @ low["weight"].T).float()
    logp = logits.log_softmax(-1)[range(M), low["labels"]]
    rest = {name: low[name] for name in ("logp_old", "adv", "denom")}
    plain = plain_loss(logp, **rest, objective="clip", level=level, agg="sample")
    assert_error_relative(got.loss, want.loss.detach(), plain.detach())
    for x, y, z in zip(grads(got.loss, low), grads(want.loss, exact), grads(plain, low), strict=True):
        assert x.dtype == dtype
        assert_error_relative(x, y, z)


def test_fp16_gradients_see_the_loss_scale_before_they_are_rounded() -> None:
    """A gradient of 1e-8 is 0 in fp16: scaling it afterwards would be too late."""
    arguments = make(torch.float16)
    arguments["denom"] = 1e8
    got, want = (grads(2.0**20 * out.loss, arguments) for out in both(arguments))
    assert want[0].any()
    assert all(torch.equal(x, y) for x, y in zip(got, want, strict=True))


# ---- 3. memory and work --------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_no_tensor_of_all_logits(level: str) -> None:
    rows, vocab = 512, 1000
    hidden, weight = torch.randn(rows, 4, requires_grad=True), torch.randn(vocab, 4, requires_grad=True)
    labels, adv, chunk = torch.randint(vocab, (rows,)), torch.ones(2), megabytes(32, vocab)

    def step() -> None:
        ops.grpo_loss(
            hidden, weight, labels, None, adv, cu([200, 312]), denom=2, level=level, chunk_mb=chunk
        ).loss.backward()

    assert largest_allocation(step) <= 2**20 * chunk


@pytest.mark.parametrize(("level", "gemms"), [("token", 3), ("sequence", 4)])
def test_number_of_gemms(level: str, gemms: int) -> None:
    """One chunk: token level needs one GEMM less; a frozen weight one less again; evaluation only one."""
    arguments = make(torch.float32)

    def count(arguments: dict[str, Any], backward: bool) -> int:
        with torch.profiler.profile() as profile:
            loss = ops.grpo_loss(**arguments, level=level).loss
            if backward:
                loss.backward()
        return sum(event.name in ("aten::mm", "aten::addmm_") for event in profile.events())

    assert count(arguments, True) == gemms
    assert count(arguments | {"weight": arguments["weight"].detach()}, True) == gemms - 1
    assert count(arguments | {"hidden": arguments["hidden"].detach()}, True) == gemms - 1
    with torch.no_grad():
        assert count(arguments, False) == 1


# ---- 4. edges ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_frozen_inputs(frozen: str, level: str) -> None:
    arguments = make()
    want = grads(ops.grpo_loss(**arguments, level=level).loss, arguments)
    arguments[frozen] = arguments[frozen].detach()
    live = "weight" if frozen == "hidden" else "hidden"
    (got,) = torch.autograd.grad(ops.grpo_loss(**arguments, level=level).loss, arguments[live])
    assert torch.equal(got, want[1 if frozen == "hidden" else 0])


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_no_rows(level: str) -> None:
    arguments = make() | {"adv": torch.zeros(2).double(), "cu_seqlens": cu([0, 0])}
    for name in ("hidden", "labels", "logp_old"):
        arguments[name] = arguments[name][:0].detach()
    arguments["hidden"].requires_grad_()
    out = ops.grpo_loss(**arguments, level=level)
    assert out.loss.item() == out.rows.item() == 0
    assert not any(x.any() for x in grads(out.loss, arguments))


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_rows_of_advantage_zero_get_no_gradient(level: str) -> None:
    arguments = make()
    arguments["adv"] = torch.zeros_like(arguments["adv"])
    out = ops.grpo_loss(**arguments, level=level)
    assert out.loss.item() == 0
    assert not any(x.any() for x in grads(out.loss, arguments))


def test_rows_beyond_the_last_bound_count_for_nothing() -> None:
    arguments = make()
    want = ops.grpo_loss(**arguments)
    slopes = grads(want.loss, arguments)
    more = dict(arguments)
    for name in ("hidden", "labels", "logp_old"):
        more[name] = torch.cat((arguments[name], arguments[name][:2])).detach()
    more["hidden"].requires_grad_()
    got = ops.grpo_loss(**more)
    dhidden, dweight = grads(got.loss, more)
    assert worst((got.loss, dhidden[:M], dweight), (want.loss, *slopes)) < POLICY_FP64
    assert not dhidden[M:].any()
    assert got.rows == M


# ---- 5. error messages ---------------------------------------------------------------------------------

SHORT = torch.zeros(2, dtype=torch.float64)
MESSAGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "weight": ({"weight": SHORT}, ValueError, "weight must be [V, C=4] float64 on cpu, got [2] float64"),
    "labels": ({"labels": SHORT.long()}, ValueError, "labels must be [M=13] int64 on cpu, got [2] int64"),
    "label": ({"labels": torch.full((M,), V)}, ValueError, "labels must be within 0 and V - 1 = 10, got 11"),
    "logp_old": ({"logp_old": SHORT}, ValueError, "logp_old must be [M=13] float64 on cpu, got [2] float64"),
    "row_weight": ({"row_weight": SHORT}, ValueError, "row_weight must be [M=13] float64 on cpu, got [2]"),
    "adv": ({"adv": SHORT}, ValueError, "adv must be [S=6] float64 on cpu, got [2] float64 on cpu"),
    "denom": ({"denom": -1.0}, ValueError, "denom must be above 0, got -1.0 (float)"),
    "level": ({"level": "row"}, ValueError, "level must be one of 'token', 'sequence', got 'row'"),
    "kl": ({"kl_coef": 0.1}, ValueError, "kl_coef must be 0 without logp_ref, got 0.1"),
    "temperature": ({"temperature": -1.0}, ValueError, "temperature must be above 0, got -1.0"),
    "chunk": ({"chunk_mb": 0.0}, ValueError, "chunk_mb must be above 0, got 0.0"),
    "backend": ({"backend": "native"}, BackendError, "backend 'native' cannot run this call"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    wrong, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=re.escape(message)):
        ops.grpo_loss(**(make() | wrong))


# ---- 6. opcheck and compile ----------------------------------------------------------------------------


def test_opcheck() -> None:
    a = make(torch.float32)
    rows = a["adv"].repeat_interleave(torch.tensor(LENGTHS)), torch.ones(M), None, a["logp_old"], None
    flags = ("clip", 0.2, 0.28, None, 0.0, 0.1, 0.5, 4)
    for wanted in ((True, True), (True, False)):
        weight = a["weight"] if wanted[1] else a["weight"].detach()
        arguments = (a["hidden"], weight, a["labels"], None, *rows, *flags, *wanted, "ref")
        torch.library.opcheck(torch.ops.glmv.grpo_fwd, arguments)


@pytest.mark.parametrize("level", ["token", "sequence"])
def test_fullgraph_compile(level: str) -> None:
    arguments = make(torch.float32)
    inputs = arguments.pop("hidden"), arguments.pop("weight")

    def step(hidden: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        out = ops.grpo_loss(hidden, weight, **arguments, level=level, temperature=0.7)
        return out.loss, out.metrics["entropy"]

    results = []
    for f in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        loss, entropy = f(*inputs)
        results.append((loss, entropy, *torch.autograd.grad(loss, inputs)))
    assert all(torch.equal(x, y) for x, y in zip(*results, strict=True))
