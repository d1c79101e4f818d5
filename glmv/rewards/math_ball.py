"""Complex numbers with an error bound, in 60-digit decimal arithmetic: a disc that holds the true value.

What a function cannot do safely (a pole, a branch cut, a jump inside the disc) raises Undefined; nothing is
guessed. Bounds are generous: they need to be true, not tight.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow, Underflow
from fractions import Fraction
from typing import NamedTuple

CONTEXT = Context(
    prec=60,
    rounding=ROUND_HALF_EVEN,
    Emin=-99_999,
    Emax=99_999,
    traps=[InvalidOperation, DivisionByZero, Overflow, Underflow],
)
EPS = Decimal("1e-58")  # of one operation, relative; the arithmetic itself is good to 1e-59
SERIES_EPS = Decimal("1e-54")  # of sine, cosine and arctangent, absolute
MAX_ANGLE, MAX_EXP, MAX_POWER = Decimal(10**6), Decimal(10**5), 1000
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")
_ZERO, _ONE = Decimal(0), Decimal(1)


class Undefined(Exception):
    """There is no value, or none that is certain."""


class Ball(NamedTuple):
    """All z with |z - (re + i im)| <= rad."""

    re: Decimal
    im: Decimal
    rad: Decimal

    @property
    def size(self) -> Decimal:
        """An upper bound of the modulus of the centre."""
        return abs(self.re) + abs(self.im)


I = Ball(_ZERO, _ONE, _ZERO)


def from_fraction(value: Fraction) -> Ball:
    quotient = Decimal(value.numerator) / Decimal(value.denominator)
    return Ball(quotient, _ZERO, EPS * abs(quotient))


def pi() -> Ball:
    return Ball(+PI, _ZERO, EPS * 4)


def e() -> Ball:
    return Ball(_ONE.exp(), _ZERO, EPS * 3)


def add(a: Ball, b: Ball) -> Ball:
    re, im = a.re + b.re, a.im + b.im
    return Ball(re, im, a.rad + b.rad + EPS * (abs(re) + abs(im)))


def neg(a: Ball) -> Ball:
    return Ball(-a.re, -a.im, a.rad)


def mul(a: Ball, b: Ball) -> Ball:
    re, im = a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re
    return Ball(re, im, a.size * b.rad + b.size * a.rad + a.rad * b.rad + 4 * EPS * a.size * b.size)


def inverse(a: Ball) -> Ball:
    square = a.re * a.re + a.im * a.im
    least = square.sqrt() * (1 - EPS) - a.rad
    if least <= 0:
        raise Undefined
    return Ball(a.re / square, -a.im / square, a.rad / (least * least) + 8 * EPS / least)


def power(a: Ball, n: int) -> Ball:
    """By squaring; n may be negative."""
    if abs(n) > MAX_POWER:
        raise Undefined
    base, result = (a if n >= 0 else inverse(a)), Ball(_ONE, _ZERO, _ZERO)
    n = abs(n)
    while n:
        result = mul(result, base) if n & 1 else result
        base, n = mul(base, base) if n > 1 else base, n >> 1
    return result


def real(a: Ball) -> Decimal:
    """The centre of a ball that is certainly meant to be real."""
    if a.im != 0:
        raise Undefined
    return a.re


def positive(a: Ball) -> Decimal:
    if real(a) - a.rad <= 0:
        raise Undefined
    return a.re


def exp(a: Ball) -> Ball:
    if abs(a.re) > MAX_EXP or a.rad > Decimal("0.1"):
        raise Undefined
    scale = a.re.exp()
    error = scale * (2 * a.rad + 4 * SERIES_EPS * (1 + abs(a.im))) if a.im else scale * (2 * a.rad + EPS)
    if not a.im:
        return Ball(scale, _ZERO, error)
    cosine, sine = _cos_sin(a.im)
    return Ball(scale * cosine, scale * sine, error)


def ln(a: Ball) -> Ball:
    value = positive(a).ln()
    return Ball(value, _ZERO, a.rad / (a.re - a.rad) + EPS * (1 + abs(value)))


def sqrt(a: Ball, imaginary: bool) -> Ball:
    """The square root; of a negative number, i times that of its opposite if `imaginary`, else undefined."""
    value = real(a)
    if value < 0 and -value > a.rad:
        if not imaginary:
            raise Undefined
        return mul(I, sqrt(neg(a), False))
    if value <= a.rad:  # may be zero
        if value == a.rad == 0:
            return a
        raise Undefined
    result = value.sqrt()
    return Ball(result, _ZERO, a.rad / (value - a.rad).sqrt() + EPS * result)


def root(a: Ball, degree: int, imaginary: bool) -> Ball:
    if degree == 2:
        return sqrt(a, imaginary)
    if degree % 2 and real(a) < 0:
        return neg(root(neg(a), degree, imaginary))
    return exp(mul(ln(a), from_fraction(Fraction(1, degree))))


def real_power(base: Ball, exponent: Ball) -> Ball:
    return exp(mul(ln(base), exponent))


def odd_root_power(base: Ball, exponent: Fraction) -> Ball:
    """base^(p/q) for odd q, real for a negative base too: (-8)^(1/3) is -2."""
    if real(base) + base.rad >= 0:
        return real_power(base, from_fraction(exponent))
    result = real_power(neg(base), from_fraction(exponent))
    return neg(result) if exponent.numerator % 2 else result


def sin(a: Ball) -> Ball:
    return Ball(_cos_sin(real(a))[1], _ZERO, a.rad + SERIES_EPS * (1 + abs(a.re)))


def cos(a: Ball) -> Ball:
    return Ball(_cos_sin(real(a))[0], _ZERO, a.rad + SERIES_EPS * (1 + abs(a.re)))


def arctan(a: Ball) -> Ball:
    return Ball(_arctan(real(a)), _ZERO, a.rad + SERIES_EPS)


def arcsin(a: Ball) -> Ball:
    room = add(Ball(_ONE, _ZERO, _ZERO), neg(mul(a, a)))
    return arctan(mul(a, inverse(sqrt(room, False))))


def arccos(a: Ball) -> Ball:
    return add(mul(pi(), from_fraction(Fraction(1, 2))), neg(arcsin(a)))


def modulus(a: Ball) -> Ball:
    value = (a.re * a.re + a.im * a.im).sqrt() if a.im else abs(a.re)
    return Ball(value, _ZERO, a.rad + 4 * EPS * a.size)


def step(a: Ball, function: Callable[[Fraction], int]) -> Fraction:
    """floor or ceil, if the whole ball has the same."""
    low, high = Fraction(real(a) - a.rad), Fraction(a.re + a.rad)
    if abs(low) > MAX_ANGLE or function(low) != function(high):
        raise Undefined
    return Fraction(function(low))


def _cos_sin(angle: Decimal) -> tuple[Decimal, Decimal]:
    """By Taylor series after reduction to [-pi, pi]."""
    if abs(angle) > MAX_ANGLE:
        raise Undefined
    x = angle.remainder_near(2 * PI)
    term, at, sums = _ONE, 0, [_ZERO, _ZERO]
    while abs(term) > SERIES_EPS / 1000:
        sums[at % 2] += term if at % 4 < 2 else -term
        at += 1
        term = term * x / at
    return sums[0], sums[1]


def _arctan(x: Decimal) -> Decimal:
    for _ in range(4):  # arctan x = 2 arctan(x / (1 + sqrt(1 + x^2)))
        x = x / (1 + (1 + x * x).sqrt())
    term, total, at = x, _ZERO, 1
    while abs(term) > SERIES_EPS / 1000:
        total += term / at
        term, at = -term * x * x, at + 2
    return 16 * total
