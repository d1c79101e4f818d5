"""logp and linear_logp against log_softmax in fp64."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from glmv import ops
from glmv.backend import BackendError
from tests.numeric import (
    TOKEN_LOSS_FP32,
    TOKEN_LOSS_FP64,
    TOKEN_LOSS_GRAD_FP32,
    assert_error_relative,
)

F64 = torch.float64


def truth(
    logits: Tensor, labels: Tensor, temperature: float = 1.0, logit_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """By autograd through log_softmax; -inf logits are left out of the entropy."""
    bias = 0 if logit_bias is None else logit_bias
    log_p = ((logits + bias) / temperature).log_softmax(-1)
    return log_p[range(len(labels)), labels], -(log_p.exp() * log_p.masked_fill(log_p == -math.inf, 0)).sum(
        -1
    )


def linear_truth(hidden: Tensor, weight: Tensor, *args: Any, **options: Any) -> tuple[Tensor, Tensor]:
    return truth(hidden @ weight.T, *args, **options)


def make(rows: int, vocab: int, width: int, dtype: torch.dtype = F64) -> tuple[Tensor, Tensor, Tensor]:
    """hidden [M, C], weight [V, C], with logits of size 2, and labels."""
    hidden = torch.randn(rows, width, dtype=dtype, requires_grad=True)
    weight = (2 * width**-0.5 * torch.randn(vocab, width, dtype=dtype)).requires_grad_()
    return hidden, weight, torch.randint(vocab, (rows,))


def megabytes(rows: int, vocab: int) -> float:
    return rows * vocab * 4 / 2**20


def grads(outputs: tuple[Tensor, Tensor], inputs: tuple[Tensor, ...], seed: int = 0) -> tuple[Tensor, ...]:
    """Gradients for other, fixed weights of each row of logp and ent."""
    generator = torch.Generator().manual_seed(seed)
    weights = [torch.randn(len(x), generator=generator).to(x.dtype) for x in outputs]
    return torch.autograd.grad(sum((w * x).sum() for w, x in zip(weights, outputs, strict=True)), inputs)


def worst(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> float:
    return max((x - y).abs().max().item() for x, y in zip(got, want, strict=True))


# ---- 1. the reference ----------------------------------------------------------------------------------

OPTIONS = [{}, {"temperature": 0.7}, {"temperature": 2.0, "logit_bias": True}]


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("vocab", [1, 2, 113])
def test_logp_equals_log_softmax(vocab: int, options: dict[str, Any]) -> None:
    logits = (3 * torch.randn(17, vocab, dtype=F64)).requires_grad_()
    labels = torch.randint(vocab, (17,))
    if "logit_bias" in options:
        options = options | {"logit_bias": torch.randn(vocab, dtype=F64)}
    got, want = ops.logp(logits, labels, **options), truth(logits, labels, **options)
    assert worst(got, want) < TOKEN_LOSS_FP64
    assert worst(grads(got, (logits,)), grads(want, (logits,))) < TOKEN_LOSS_FP64


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("chunk", [1, 4, 17, 1000])
def test_linear_logp_equals_log_softmax(chunk: int, options: dict[str, Any]) -> None:
    hidden, weight, labels = make(17, 113, 6)
    if "logit_bias" in options:
        options = options | {"logit_bias": torch.randn(113, dtype=F64)}
    got = ops.linear_logp(hidden, weight, labels, **options, chunk_mb=megabytes(chunk, 113))
    want = linear_truth(hidden, weight, labels, **options)
    assert worst(got, want) < TOKEN_LOSS_FP64
    inputs = hidden, weight
    assert worst(grads(got, inputs), grads(want, inputs)) < TOKEN_LOSS_FP64


def test_hand_numbers() -> None:
    """Logits ln 1, ln 2, ln 5: p = 1/8, 1/4, 5/8."""
    logits = torch.tensor([[1.0, 2.0, 5.0]] * 3, dtype=F64).log()
    p = torch.tensor([1 / 8, 1 / 4, 5 / 8], dtype=F64)
    logp, ent = ops.logp(logits, torch.arange(3))
    assert (logp - p.log()).abs().max() < TOKEN_LOSS_FP64
    want = math.log(8) / 8 + math.log(4) / 4 + 5 * math.log(8 / 5) / 8
    assert (ent - want).abs().max() < TOKEN_LOSS_FP64


def test_gradcheck() -> None:
    hidden, weight, labels = make(5, 7, 3)
    logits, bias = torch.randn(5, 7, dtype=F64, requires_grad=True), torch.randn(7, dtype=F64)
    assert torch.autograd.gradcheck(lambda z: ops.logp(z, labels, 0.7, logit_bias=bias), (logits,))
    assert torch.autograd.gradcheck(
        lambda h, w: ops.linear_logp(h, w, labels, 0.7, logit_bias=bias, chunk_mb=megabytes(2, 7)),
        (hidden, weight),
    )


def test_fp32() -> None:
    hidden, weight, labels = make(64, 501, 32)
    low = [x.detach().float().requires_grad_() for x in (hidden, weight)]
    got, want = ops.linear_logp(*low, labels, 0.8), linear_truth(hidden, weight, labels, 0.8)
    assert all(x.dtype == torch.float32 for x in got)
    assert worst(got, want) < TOKEN_LOSS_FP32
    assert worst(grads(got, tuple(low)), grads(want, (hidden, weight))) < TOKEN_LOSS_GRAD_FP32


# ---- 2. low precision ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision(dtype: torch.dtype) -> None:
    """Against plain PyTorch: a GEMM in the low dtype, log_softmax of its result in fp32."""
    hidden, weight, labels = make(64, 113, 32, dtype)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    got = ops.linear_logp(hidden, weight, labels, chunk_mb=megabytes(16, 113))
    want, plain = linear_truth(*exact, labels), truth((hidden @ weight.T).float(), labels)
    for x, y, z in zip(got, want, plain, strict=True):
        assert x.dtype == torch.float32
        assert_error_relative(x, y, z)
    triples = grads(got, (hidden, weight)), grads(want, tuple(exact)), grads(plain, (hidden, weight))
    for x, y, z in zip(*triples, strict=True):
        assert x.dtype == dtype
        assert_error_relative(x, y, z)


def test_low_precision_logits() -> None:
    logits = (3 * torch.randn(9, 113)).bfloat16().requires_grad_()
    exact, labels = logits.detach().double().requires_grad_(), torch.randint(113, (9,))
    got, want, plain = ops.logp(logits, labels), truth(exact, labels), truth(logits.float(), labels)
    for x, y, z in zip(got, want, plain, strict=True):
        assert_error_relative(x, y, z)
    triple = grads(got, (logits,)), grads(want, (exact,)), grads(plain, (logits,))
    assert_error_relative(triple[0][0], triple[1][0], triple[2][0])


def test_liger_1323_gradient_of_the_weight_is_summed_in_fp32() -> None:
    """Sums over chunks in bf16 grew with their number: 256 chunks of one row are no worse than one GEMM."""
    hidden, weight, labels = make(256, 5, 4, torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    errors = []
    for rows in (1, 256):
        logp, _ = ops.linear_logp(hidden, weight, labels, chunk_mb=megabytes(rows, 5))
        want = torch.autograd.grad(linear_truth(*exact, labels)[0].sum(), exact[1])[0]
        errors.append((torch.autograd.grad(logp.sum(), weight)[0].double() - want).abs().max().item())
    assert errors[0] <= 1.5 * errors[1]


# ---- 3. memory -----------------------------------------------------------------------------------------


def largest_allocation(run: Callable[[], object]) -> int:
    """Bytes of the largest allocation that one PyTorch call makes, inside custom ops too."""
    with torch.profiler.profile(profile_memory=True) as profile:
        run()
    return max(event.self_cpu_memory_usage for event in profile.events())


def test_no_tensor_of_all_logits() -> None:
    rows, vocab = 512, 1000
    hidden, weight, labels = make(rows, vocab, 4, torch.float32)
    chunk = megabytes(32, vocab)

    def step() -> None:
        logp, ent = ops.linear_logp(hidden, weight, labels, chunk_mb=chunk)
        (logp.sum() + ent.sum()).backward()

    def plain() -> None:
        sum(linear_truth(hidden, weight, labels)).sum().backward()

    assert largest_allocation(plain) >= rows * vocab * 4
    assert largest_allocation(step) <= 2**20 * chunk


# ---- 4. edges ------------------------------------------------------------------------------------------


def test_logits_of_minus_infinity() -> None:
    """Tokens that cannot be: probability 0, no entropy, no gradient, no NaN."""
    logits = torch.randn(4, 6, dtype=F64)
    logits[:, 1] = logits[2, 3:] = -math.inf
    logits.requires_grad_()
    labels = torch.tensor([0, 2, 0, 5])
    got, want = ops.logp(logits, labels), truth(logits, labels)
    assert worst(got, want) < TOKEN_LOSS_FP64
    (dlogits,) = grads(got, (logits,))
    assert dlogits.isfinite().all()
    assert not dlogits[logits == -math.inf].any()
    with torch.no_grad():
        few = logits.clone()
        few[:, 1] = -1e4
    assert worst(ops.logp(few, labels), want) < TOKEN_LOSS_FP64


def test_label_of_minus_infinity() -> None:
    logp, ent = ops.logp(torch.tensor([[0.0, -math.inf, 0.0]]), torch.tensor([1]))
    assert logp.item() == -math.inf
    assert abs(ent.item() - math.log(2)) < TOKEN_LOSS_FP32


def test_bias_masks_tokens() -> None:
    """-1e4 on a token is a vocabulary without it; the bias comes before the temperature."""
    hidden, weight, _ = make(9, 6, 4)
    allowed = torch.tensor([0, 2, 3, 5])
    bias = torch.full((6,), -1e4, dtype=F64).index_fill(0, allowed, 0.0)
    few = torch.randint(4, (9,))
    for temperature in (1.0, 0.3):
        got = ops.linear_logp(hidden, weight, allowed[few], temperature, logit_bias=bias)
        assert worst(got, ops.linear_logp(hidden, weight[allowed], few, temperature)) < TOKEN_LOSS_FP64
    slope = torch.arange(6, dtype=F64)
    got = ops.linear_logp(hidden, weight, few, 0.5, logit_bias=slope)
    assert worst(got, truth(hidden @ weight.T + slope, few, 0.5)) < TOKEN_LOSS_FP64


def test_huge_logits() -> None:
    logits = torch.tensor([[9e4, -9e4, 8e4], [9e4, 9e4, 9e4]])
    logp, ent = ops.logp(logits, torch.tensor([2, 1]))
    assert logp[0] == -1e4
    assert ent[0] == 0
    assert torch.allclose(
        torch.stack((-logp[1], ent[1])), torch.tensor(3.0).log(), rtol=0, atol=TOKEN_LOSS_FP32
    )


def test_no_rows() -> None:
    hidden, weight, labels = make(0, 7, 3)
    got = ops.linear_logp(hidden, weight, labels)
    assert [x.shape for x in got] == [(0,), (0,)]
    dhidden, dweight = grads(got, (hidden, weight))
    assert dhidden.shape == (0, 3)
    assert not dweight.any()
    assert ops.logp(hidden @ weight.T, labels)[0].shape == (0,)


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_frozen_inputs(frozen: str) -> None:
    """A frozen input gets no gradient and costs no GEMM; the other one's is the same."""
    hidden, weight, labels = make(6, 7, 3)
    want = grads(ops.linear_logp(hidden, weight, labels), (hidden, weight))
    inputs = {"hidden": hidden, "weight": weight}
    inputs[frozen] = inputs[frozen].detach()
    live = next(x for x in inputs.values() if x.requires_grad)
    (got,) = grads(ops.linear_logp(**inputs, labels=labels), (live,))
    assert torch.equal(got, want[1 if frozen == "hidden" else 0])


def test_hidden_as_a_strided_view() -> None:
    hidden, weight, labels = make(6, 7, 3)
    wide = torch.stack((hidden, hidden), -1).detach().requires_grad_()
    turned = weight.detach().T.contiguous().T.requires_grad_()
    got = grads(ops.linear_logp(wide[..., 0], turned, labels), (wide, turned))
    want = grads(ops.linear_logp(hidden, weight, labels), (hidden, weight))
    assert worst((got[0][..., 0], got[1]), want) < TOKEN_LOSS_FP64


# ---- 5. error messages ---------------------------------------------------------------------------------

HIDDEN, WEIGHT, LABELS = torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(4, dtype=torch.int64)
MESSAGES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "hidden": (
        {"hidden": HIDDEN[0]},
        ValueError,
        "hidden must be [M, C] float32|bfloat16|float16|float64, got",
    ),
    "weight": (
        {"weight": WEIGHT.T},
        ValueError,
        "weight must be [V, C=3] float32 on cpu, got [3, 5] float32",
    ),
    "two dtypes": (
        {"weight": WEIGHT.bfloat16()},
        TypeError,
        "weight must be [V, C=3] float32 on cpu, got [5, 3]",
    ),
    "no token": ({"weight": WEIGHT[:0]}, ValueError, "V must be at least 1, got 0"),
    "labels": ({"labels": LABELS[:3]}, ValueError, "labels must be [M=4] int64 on cpu, got [3] int64"),
    "label dtype": ({"labels": LABELS.int()}, TypeError, "labels must be [M=4] int64 on cpu, got [4] int32"),
    "label high": ({"labels": LABELS + 5}, ValueError, "labels must be within 0 and V - 1 = 4, got 5"),
    "label low": ({"labels": LABELS - 100}, ValueError, "labels must be within 0 and V - 1 = 4, got -100"),
    "bias": ({"logit_bias": torch.zeros(4)}, ValueError, "logit_bias must be [V=5] float32 on cpu, got [4]"),
    "temperature": ({"temperature": 0.0}, ValueError, "temperature must be above 0, got 0.0"),
    "chunk": ({"chunk_mb": 0}, ValueError, "chunk_mb must be above 0, got 0"),
    "backend": ({"backend": "flash"}, BackendError, "token_loss has no flash backend"),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(name: str) -> None:
    wrong, kind, message = MESSAGES[name]
    with pytest.raises(kind, match=re.escape(message)):
        ops.linear_logp(**({"hidden": HIDDEN, "weight": WEIGHT, "labels": LABELS} | wrong))


def test_messages_of_logp() -> None:
    with pytest.raises(ValueError, match=re.escape("logp: logits must be [M, V] float32|bfloat16")):
        ops.logp(HIDDEN[0], LABELS)
    with pytest.raises(ValueError, match="logp: labels must be within 0 and V - 1 = 2, got 3"):
        ops.logp(HIDDEN, LABELS + 3)


# ---- 6. opcheck and compile ----------------------------------------------------------------------------


def test_opcheck() -> None:
    hidden, weight, labels = make(5, 7, 3, torch.float32)
    bias, g = torch.zeros(7), torch.ones(5)
    logits = (hidden @ weight.T).detach().requires_grad_()
    torch.library.opcheck(torch.ops.glmv.logp_fwd, (logits, labels, bias, 0.5, "ref"))
    linear = torch.ops.glmv.linear_logp_fwd
    torch.library.opcheck(linear, (hidden, weight, labels, bias, 0.5, 2, "ref"))
    constants = hidden.detach(), weight.detach(), labels, bias
    lse, _, ent = linear(*constants, 0.5, 2, "ref")
    rows = lse, ent, g, g
    torch.library.opcheck(torch.ops.glmv.logp_bwd, (logits.detach(), labels, *rows, bias, 0.5, "ref"))
    for wanted in ((True, True), (False, True)):
        arguments = (*constants, *rows, *wanted, 0.5, 2, "ref")
        torch.library.opcheck(torch.ops.glmv.linear_logp_bwd, arguments)


@pytest.mark.parametrize("frozen", [False, True])
def test_fullgraph_compile(frozen: bool) -> None:
    """With a float temperature: Liger-Kernel 1350 had it turn the graph to fp64."""
    hidden, weight, labels = make(6, 7, 3, torch.float32)
    weight = weight.detach() if frozen else weight
    inputs = (hidden,) if frozen else (hidden, weight)
    results = []
    for f in (ops.linear_logp, torch.compile(ops.linear_logp, fullgraph=True, backend="aot_eager")):
        out = f(hidden, weight, labels, 0.7)
        results.append((*out, *grads(out, inputs)))
    assert all(torch.equal(x, y) and x.dtype == torch.float32 for x, y in zip(*results, strict=True))
