"""What the tests of rope share: inputs, the truth by complex numbers in fp64, the backends that run here."""

import numpy as np
import pytest
import torch
from torch import Tensor

from glmv import kernels
from glmv.backend import why_not
from glmv.bench.cases import ROPE, Rope
from tests.numeric import ROPE_ABS

Inputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, str]  # q, k, pos, inv_freq, axis_of_lane, pairing

CPU = torch.device("cpu")
NATIVE_MISSING = why_not("rope", "native", CPU, torch.float32)
INTERPRETER = kernels.why_not(CPU) is None
# Layouts no model has yet: lanes that are no power of two, one head, a single axis, the whole head turning.
ODD = [Rope(3, 1, 20, (1, 3, 2), "adjacent"), Rope(1, 1, 24, (5, 4), "half"), Rope(5, 2, 6, (3,), "adjacent")]
LAYOUTS = [*ROPE.values(), *ODD]

each_backend = pytest.mark.parametrize(
    ("device", "backend"),
    [
        ("cpu", "ref"),
        pytest.param(
            "cpu", "native", marks=pytest.mark.skipif(bool(NATIVE_MISSING), reason=str(NATIVE_MISSING))
        ),
        *([("cpu", "triton")] if INTERPRETER else []),
        *([pytest.param("cuda", "triton", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []),
    ],
)


def make(shape: Rope, tokens: int = 11, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Inputs:
    g = torch.Generator().manual_seed(0)
    q = torch.randn(tokens, shape.num_heads, shape.head_dim, generator=g).to(device, dtype)
    k = torch.randn(tokens, shape.num_kv_heads, shape.head_dim, generator=g).to(device, dtype)
    inv_freq, axis = (x.to(device) for x in shape.tables())
    return q, k, shape.positions(tokens).to(device), inv_freq, axis, shape.pairing


def make_strided(device: str) -> Inputs:
    """q and k as views of one qkv tensor, positions and inv_freq as every second element."""
    q, k, pos, inv_freq, axis, pairing = make(ROPE["tiny text"], device=device)
    qkv = torch.cat((q, k, k), 1)
    spread = torch.stack((pos, pos + 7), -1).flatten(1)[:, ::2]
    return qkv[:, :4], qkv[:, 4:5], spread, torch.stack((inv_freq, inv_freq), 1)[:, 0], axis, pairing


def truth(x: Tensor, pos: Tensor, inv_freq: Tensor, axis: Tensor, pairing: str, sign: int = 1) -> Tensor:
    """Each pair as a complex number, times exp(i angle), in fp64; the angle is the fp32 product."""
    y = x.detach().double().cpu().numpy().copy()
    angle = pos.cpu().numpy()[axis.cpu().numpy()].T.astype(np.float32) * inv_freq.cpu().numpy()
    n = angle.shape[1]
    a, b = (slice(0, n), slice(n, 2 * n)) if pairing == "half" else (slice(0, 2 * n, 2), slice(1, 2 * n, 2))
    z = (y[..., a] + 1j * y[..., b]) * np.exp(sign * 1j * angle.astype(np.float64))[:, None]
    y[..., a], y[..., b] = z.real, z.imag
    return torch.from_numpy(y)


def assert_rounded_once(got: Tensor, want: Tensor) -> None:
    """`got` is `want` rounded to its dtype, but for the error of fp32 arithmetic."""
    # Triton's interpreter truncates to bf16 where the hardware rounds.
    ulps = 1.0 if INTERPRETER and got.dtype == torch.bfloat16 else 0.5
    error = (got.detach().double().cpu() - want).abs()
    allowed = ulps * torch.finfo(got.dtype).eps * want.abs() + ROPE_ABS
    assert (error <= allowed).all(), f"largest error {error.max():.3g}"
