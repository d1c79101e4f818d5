"""What the vision tower and the decoder share: GLM's RMSNorm and the tables that a rope call takes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from glmv import ops


class RMSNorm(nn.Module):
    """w * x / rms(x) over the last dimension, as GLM rounds it.

    Statistics and the quotient are fp32 (fp64 for fp64 input), the quotient is rounded to the dtype of x and
    only then multiplied by w: a norm that rounds once differs by an ulp in a quarter of bf16 outputs.
    """

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x [..., C] -> [..., C] of the same dtype. No second derivatives."""
        y: Tensor = _Normalize.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return y


class _Normalize(torch.autograd.Function):
    """Keeps x and 1/rms alone, where autograd would keep four tensors of the size of x: a tenth of a step."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        inv_rms = torch.linalg.vecdot(wide, wide).div_(x.shape[-1]).add_(eps).rsqrt_().unsqueeze(-1)
        ctx.save_for_backward(x, weight, inv_rms)
        y: Tensor = (wide * inv_rms).to(x.dtype) * weight
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor, None]:
        """With n = x / rms: dweight = sum(dy n), dx = (dn - n mean(dn n)) / rms where dn = dy weight."""
        x, weight, inv_rms = ctx.saved_tensors
        n = x * inv_rms
        dn = dy.to(n.dtype) * weight
        dweight = (dy * n).flatten(0, -2).sum(0)
        mean = torch.linalg.vecdot(dn, n).div_(x.shape[-1]).unsqueeze(-1)
        return dn.addcmul_(n, mean, value=-1).mul_(inv_rms).to(x.dtype), dweight.to(weight.dtype), None


class Rope:
    """The constant arguments of `ops.rope`: frequencies, the position axis of each lane, the pairing.

    Neither a module nor a buffer, on purpose: `model.to(torch.bfloat16)` casts buffers, and frequencies that
    were bf16 once are wrong by 0.7 in the cosine at position 4096. Computed in fp64, kept in fp32.
    """

    def __init__(self, theta: float, dim: int, lanes: Sequence[tuple[int, int]], pairing: str) -> None:
        """Lane i of an axis turns by theta^(-2 i / dim) a position; `lanes` are (axis, i) in lane order."""
        self.pairing = pairing
        self._freqs = [theta ** (-2.0 * i / dim) for _, i in lanes]
        self._axes = [axis for axis, _ in lanes]
        self._tables: dict[torch.device, tuple[Tensor, Tensor]] = {}
        self.tables(torch.device("cpu"))

    def __call__(self, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """q [T, H, D], k [T, Hk, D], pos [A, T] int -> rotated q, k."""
        return ops.rope(q, k, pos, *self.tables(q.device), self.pairing)

    def tables(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """inv_freq [R/2] float32 and axis_of_lane [R/2] int64 on `device`, made once."""
        if device not in self._tables:
            # A table made under inference_mode could not be saved for a later backward.
            with torch.inference_mode(False):
                inv_freq = torch.tensor(self._freqs, dtype=torch.float32, device=device)
                self._tables[device] = inv_freq, torch.tensor(self._axes, device=device)
        return self._tables[device]
