# mypy: disable-error-code="no-untyped-call"
"""Rotary position embedding of packed tokens: 1 to 3 position axes, both pairings, partial rotation.

Lane i of R/2 turns by angle_i = fp32(pos[axis_of_lane[i]]) * inv_freq[i], an fp32 product in every backend.
In each head it acts on one pair of dimensions,

    y_a = x_a cos(angle_i) - x_b sin(angle_i),    y_b = x_b cos(angle_i) + x_a sin(angle_i),

(a, b) = (i, i + R/2) with pairing "half" (GLM-4.5V text, every GLM vision tower), (2i, 2i + 1) with
"adjacent" (GLM-4.1V text). Dimensions from R on pass through bit for bit. Text M-RoPE (T, H, W sections) and
the 2-D rotary of the vision tower differ only in `axis_of_lane` and `inv_freq`.

bf16 and fp16 compute in fp32 and round once, fp64 computes in fp64. Sine and cosine are right to 1e-6 for
positions up to 1,048,576. The backward pass is the same rotation by -angle (`conjugate`), so nothing of q and
k is kept for it. `pos` and `inv_freq` get no gradient. Papers: arXiv 2104.09864; M-RoPE: arXiv 2409.12191.
"""

from typing import Any, TypeVar

import torch
from torch import Tensor

from glmv import _native, check, kernels
from glmv.backend import Options, always, register, resolve

PAIRINGS = ("half", "adjacent")
K = TypeVar("K", Tensor, None)

# ---- reference -----------------------------------------------------------------------------------------


def reference(
    q: Tensor,
    k: K,
    pos: Tensor,
    inv_freq: Tensor,
    axis_of_lane: Tensor,
    pairing: str = "half",
    conjugate: bool = False,
) -> tuple[Tensor, K]:
    """The definition of `rope` in PyTorch: any device, differentiable; `conjugate` turns the other way."""
    angle = pos.T.index_select(1, axis_of_lane).to(torch.float32) * inv_freq
    angle = angle.to(torch.promote_types(q.dtype, torch.float32)).unsqueeze(1)  # [T, 1, R/2]
    cos, sin = angle.cos(), -angle.sin() if conjugate else angle.sin()
    return _rotate(q, cos, sin, pairing), None if k is None else _rotate(k, cos, sin, pairing)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> Tensor:
    rotary = 2 * cos.shape[-1]
    turning = x[..., :rotary].to(cos.dtype)
    a, b = turning.chunk(2, -1) if pairing == "half" else (turning[..., 0::2], turning[..., 1::2])
    pair = torch.addcmul(a * cos, b, sin, value=-1), torch.addcmul(b * cos, a, sin)
    y = (torch.cat(pair, -1) if pairing == "half" else torch.stack(pair, -1).flatten(-2)).to(x.dtype)
    return y if rotary == x.shape[-1] else torch.cat((y, x[..., rotary:]), -1)


# ---- op + fake -----------------------------------------------------------------------------------------
# Library.define and our own autograd.Function, not torch.library.custom_op: a tiny model calls rope thousands
# of times, and custom_op's Python costs more than the kernel then. Inside, a missing k is [T, 0, D].

_ARGS = "Tensor pos, Tensor inv_freq, Tensor axis_of_lane, bool adjacent, bool conjugate, str backend"
_LIB = torch.library.Library("glmv", "FRAGMENT")
_LIB.define(f"rope_fwd(Tensor q, Tensor k, {_ARGS}) -> (Tensor, Tensor)")
_LIB.define(f"rope_(Tensor(a!) q, Tensor(b!) k, {_ARGS}) -> ()")


def _forward(q: Tensor, k: Tensor, *args: Any) -> Any:
    pos, inv_freq, axis_of_lane, adjacent, conjugate, backend = args
    if backend == "native":
        return torch.ops.glmv_native.rope.default(q, k, *args[:-1])
    if backend == "ref":
        return reference(q, k, pos, inv_freq, axis_of_lane, PAIRINGS[adjacent], conjugate)
    kernels.launch("rope", q, k, *(y := _fake(q, k)), *args[:-1])
    return y


def _forward_(q: Tensor, k: Tensor, *args: Any) -> None:
    if args[-1] == "native":
        torch.ops.glmv_native.rope_.default(q, k, *args[:-1])
    elif args[-1] == "triton":
        kernels.launch("rope", q, k, q, k, *args[:-1])
    else:
        for x, y in zip((q, k), _forward(q, k, *args), strict=True):
            x.copy_(y)
    # So that autograd notices if q or k had been saved for the backward pass of another op.
    torch.autograd.graph.increment_version([x for x in (q, k) if not x.is_inference()])


def _fake(q: Tensor, k: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape)


_LIB.impl("rope_fwd", _forward, "CompositeExplicitAutograd")
_LIB.impl("rope_", _forward_, "CompositeExplicitAutograd")
torch.library.register_fake("glmv::rope_fwd", _fake, lib=_LIB)
torch.library.register_fake("glmv::rope_", lambda *_: None, lib=_LIB)

# ---- autograd ------------------------------------------------------------------------------------------


class _Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.save_for_backward(*args[2:5])
        ctx.adjacent, ctx.conjugate, ctx.backend = args[5:]
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.glmv.rope_fwd.default(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        # Autograd hands over any layout (the gradient of a sum has stride 0); the kernels want unit stride.
        # clone, as contiguous() keeps the strides of an empty tensor.
        dy = [g if g.stride(-1) == 1 else g.clone(memory_format=torch.contiguous_format) for g in grads]
        flags = ctx.adjacent, not ctx.conjugate, ctx.backend
        return *torch.ops.glmv.rope_fwd.default(*dy, *ctx.saved_tensors, *flags), *[None] * 6


def _autograd(*args: Any) -> Any:
    if torch.is_grad_enabled() and (args[0].requires_grad or args[1].requires_grad):
        return _Rope.apply(*args)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.glmv.rope_fwd.default(*args)


_LIB.impl("rope_fwd", _autograd, "Autograd")

# ---- backend table -------------------------------------------------------------------------------------


def _why_not(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    if dtype == torch.float64:
        return "float64 is not supported"
    return None if options.get("unit_stride", True) else "the last dimension of q and k must have stride 1"


def _why_not_native(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    if device.type != "cpu":
        return "the extension has rope for the CPU only"
    return _why_not(device, dtype, options) or _native.why_not("rope")


def _why_not_triton(device: torch.device, dtype: torch.dtype, options: Options) -> str | None:
    return _why_not(device, dtype, options) or kernels.why_not(device)


register("rope", {"native": _why_not_native, "triton": _why_not_triton, "ref": always})

# ---- public functions ----------------------------------------------------------------------------------


def rope(
    q: Tensor,
    k: K,
    pos: Tensor,
    inv_freq: Tensor,
    axis_of_lane: Tensor,
    pairing: str = "half",
    *,
    backend: str = "auto",
) -> tuple[Tensor, K]:
    """Rotate queries and keys by their positions; returns new contiguous tensors.

    q [T, H, D] float of any strides (native, triton: unit stride in D; a view of a qkv tensor is fine);
    k [T, Hk, D] like q, or None, then None is returned for it; pos [A, T] int32 | int64, a row per axis;
    inv_freq [R/2] float32, R <= D; axis_of_lane [R/2] int32 | int64, the row of `pos` for each lane (checked
    on the CPU alone: reading it on CUDA would stop the host); pairing "half" | "adjacent", see above.

    Raises ValueError or TypeError for arguments that do not fit, BackendError if the backend cannot run them.
    """
    args = _prepare("rope", q, k, pos, inv_freq, axis_of_lane, pairing=pairing, backend=backend)
    y_q, y_k = torch.ops.glmv.rope_fwd.default(*args)
    return y_q, None if k is None else y_k


def rope_(
    q: Tensor,
    k: K,
    pos: Tensor,
    inv_freq: Tensor,
    axis_of_lane: Tensor,
    pairing: str = "half",
    *,
    backend: str = "auto",
) -> tuple[Tensor, K]:
    """`rope` in place: turns q and k where they lie and returns the same two tensors.

    For inference: raises ValueError if grad mode is on and q or k requires grad. Raises too if q or k is an
    expanded view; q and k must not overlap each other. The rest as for `rope`.
    """
    args = _prepare("rope_", q, k, pos, inv_freq, axis_of_lane, pairing=pairing, backend=backend)
    for name, x in zip(("q", "k"), args[:2], strict=True):
        tracked = torch.is_grad_enabled() and x.requires_grad
        check.that("rope_", name, not tracked, "without requires_grad (or use rope)", x)
        expanded = any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride(), strict=True))
        check.that("rope_", name, not expanded, "without overlap in memory", x)
    torch.ops.glmv.rope_.default(*args)
    return q, k


def _prepare(op: str, q: Tensor, k: Tensor | None, *tables: Tensor, pairing: str, backend: str) -> list[Any]:
    """Check the arguments of the public functions and turn them into those of the ops."""
    pos, inv_freq, axis_of_lane = tables
    check.choice(op, "pairing", pairing, PAIRINGS)
    check.tensor(op, "q", q, ("T", "H", "D"), check.FLOAT)
    tokens, _, dim = q.shape
    k = q[:, :0] if k is None else k
    check.tensor(op, "k", k, (f"T={tokens}", "Hk", f"D={dim}"), (q.dtype,), q.device)
    check.tensor(op, "pos", pos, ("A", f"T={tokens}"), check.INDEX, q.device)
    check.tensor(op, "inv_freq", inv_freq, ("R/2",), (torch.float32,), q.device)
    lanes = inv_freq.shape[0]
    check.that(op, "inv_freq", 0 < 2 * lanes <= dim, f"[R/2] with 2 <= R <= D={dim}", inv_freq)
    check.tensor(op, "axis_of_lane", axis_of_lane, (f"R/2={lanes}",), check.INDEX, q.device)
    if axis_of_lane.device.type == "cpu" and not torch.compiler.is_compiling():
        axes, last = axis_of_lane.tolist(), pos.shape[0] - 1
        check.that(
            op, "axis_of_lane", min(axes) >= 0 and max(axes) <= last, f"within 0 and A - 1 = {last}", axes
        )
    unit_stride = q.stride(-1) == 1 == k.stride(-1)
    chosen = resolve("rope", backend, q.device, q.dtype, unit_stride=unit_stride)
    return [q, k, *tables, pairing == "adjacent", False, chosen]
