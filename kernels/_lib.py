# mypy: ignore-errors
# (The kernels are written in Triton's language, which has no Python types.)
"""What the Triton kernels share."""

import triton
import triton.language as tl

_PIO2: tl.constexpr = tl.constexpr(1.5707963267948966)
_2OPI: tl.constexpr = tl.constexpr(0.6366197723675814)


def next_power_of_2(n: int) -> int:
    """The smallest power of two >= n, and 1 for n <= 1 (Triton's own gives 0 for 0, which no tile may be)."""
    return 1 << max(n - 1, 0).bit_length()


@triton.jit
def sincos(angle):
    """(sin, cos) of fp32 angles, right to 1e-7 up to |angle| = 2**20 (tl.sin may be the rough hardware one).

    The range reduction is in fp64: n * pi/2 must keep about 44 bits, as fp32 has only 4 bits after the point
    at 2**20. fp32 would need fused multiply-adds, and the interpreter does not fuse.
    The polynomials on [-pi/4, pi/4] are those of Cephes, single precision.
    """
    n = tl.floor(angle.to(tl.float64) * _2OPI + 0.5)
    r = (angle.to(tl.float64) - n * _PIO2).to(tl.float32)
    quadrant = n.to(tl.int32) & 3
    r2 = r * r
    s = r + r * r2 * (-1.6666654611e-1 + r2 * (8.3321608736e-3 - r2 * 1.9515295891e-4))
    c = 1.0 - 0.5 * r2 + r2 * r2 * (4.1666645683e-2 + r2 * (2.4433157118e-5 * r2 - 1.3887316255e-3))
    odd = (quadrant & 1) == 1
    sin = tl.where(odd, c, s)
    cos = tl.where(odd, s, c)
    return tl.where(quadrant >= 2, -sin, sin), tl.where((quadrant == 1) | (quadrant == 2), -cos, cos)
