"""Equality of expressions with symbols, by their values at fixed points.

A tree is evaluated at rational points: exactly while it is rational, else as a ball that holds the true value
(math_ball). Two expressions are the same if they agree wherever they are defined, they are defined at the
same points, and these are enough; they differ as soon as they certainly differ at one point. Anything else is
unsupported. The letter i is the imaginary unit.
"""

import zlib
from collections.abc import Iterator
from decimal import Decimal, localcontext
from fractions import Fraction

from glmv.rewards import math_ball as balls
from glmv.rewards.math_lex import Node, Unreadable
from glmv.rewards.math_points import Point, Value, ball, divide, value_at

MAX_SYMBOLS, MIN_POINTS = 8, 4
MAX_NODES = 200
AGREEMENT = Decimal("1e-30")  # balls must be smaller than this, relative or absolute, to agree
# Ranges of the points, in thousandths; "mixed" signs differ from symbol to symbol.
_RANGES = (
    (50, 950, "+"), (50, 950, "+"), (1_100, 9_900, "+"), (1_100, 9_900, "+"), (10_100, 99_900, "+"),
    (1_100, 9_900, "-"), (50, 950, "-"), (1_100, 9_900, "mixed"), (1_100, 9_900, "mixed"), (50, 950, "mixed"),
    (50, 9_900, "mixed"), (10_100, 99_900, "mixed"),
)  # fmt: skip
_INTEGERS = range(2, 12)


def symbols(node: Node) -> set[str]:
    """The names of the free symbols; i is none."""
    if node.kind == "sym":
        return set() if node.name == "i" else {node.name}
    return set().union(*map(symbols, node.args))


def same_expression(got: Node, want: Node) -> bool:
    """Whether two expressions are equal for all values of their symbols. Raises Unreadable if unclear."""
    pairs = _pairs(got, want)
    if any(certainly_differ(a, b) for a, b in pairs if a is not None and b is not None):
        return False
    both = sum(a is not None and b is not None and _agree(a, b) for a, b in pairs)
    if both < MIN_POINTS or both < sum(a is not None or b is not None for a, b in pairs):
        raise Unreadable
    return True


def proportional(got: Node, want: Node) -> int:
    """1 or -1 if got = c * want for a constant c of that sign, else 0. Raises Unreadable if unclear."""
    ratio: Value | None = None
    used = 0
    for a, b in _pairs(got, want):
        if a is None or b is None:
            if (a is None) != (b is None):
                raise Unreadable
            continue
        zeros = _is_zero(a), _is_zero(b)
        if any(zeros):
            if not all(zeros):
                return 0
            continue
        with localcontext(balls.CONTEXT):
            quotient = divide(a, b)
        if ratio is not None and certainly_differ(quotient, ratio):
            return 0
        if ratio is not None and not _agree(quotient, ratio):
            raise Unreadable
        ratio, used = quotient, used + 1
    if ratio is None or used < MIN_POINTS:
        raise Unreadable
    return _sign(ratio)


def constant(node: Node, imaginary: bool) -> Value:
    """The value of an expression without symbols. Raises Unreadable."""
    found = value_at(node, {}, imaginary)
    if found is None:
        raise Unreadable
    return found


def certainly_differ(a: Value, b: Value) -> bool:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a != b
    distance, error, _ = _difference(a, b)
    return distance > error


def distance(a: Value, b: Value) -> tuple[Fraction, Fraction, Fraction]:
    """|a - b|, the most by which that may be wrong, and |b|; for comparison with a tolerance."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return abs(a - b), Fraction(0), abs(b)
    gap, error, _ = _difference(a, b)
    with localcontext(balls.CONTEXT):
        size = balls.modulus(ball(b)).re
    return Fraction(gap), Fraction(error), Fraction(size)


# -- points ------------------------------------------------------------------------------------------------


def _pairs(got: Node, want: Node) -> list[tuple[Value | None, Value | None]]:
    """The values of both at the points; None where one is not defined. Integers if one side needs them."""
    names = sorted(symbols(got) | symbols(want))
    if len(names) > MAX_SYMBOLS or _count(got) + _count(want) > MAX_NODES:
        raise Unreadable("too_long")
    imaginary = has_i(got) or has_i(want)

    def at(points: Iterator[Point]) -> list[tuple[Value | None, Value | None]]:
        return [(value_at(got, p, imaginary), value_at(want, p, imaginary)) for p in points]

    pairs = at(_rational_points(names))
    defined = list(zip(*pairs, strict=True))
    if any(all(value is None for value in side) for side in defined):
        return at(_integer_points(names))  # as for n! and (-1)^n
    return pairs


def _rational_points(names: list[str]) -> Iterator[Point]:
    for number, (low, high, sign) in enumerate(_RANGES):
        point = {}
        for name in names:
            seed = zlib.crc32(f"{number} {name}".encode())
            value = Fraction(low + seed % (high - low), 1000) + Fraction(1, 7919)
            negative = sign == "-" or (sign == "mixed" and seed >> 20 & 1)
            point[name] = -value if negative else value
        yield point


def _integer_points(names: list[str]) -> Iterator[Point]:
    for number in _INTEGERS:
        yield {name: Fraction(number + 5 * at) for at, name in enumerate(names)}


def _count(node: Node) -> int:
    return 1 + sum(map(_count, node.args))


def has_i(node: Node) -> bool:
    return (node.kind == "sym" and node.name == "i") or any(map(has_i, node.args))


# -- comparison --------------------------------------------------------------------------------------------


def _difference(a: Value, b: Value) -> tuple[Decimal, Decimal, Decimal]:
    """|a - b| at least, the sum of both errors, and the larger size."""
    with localcontext(balls.CONTEXT):
        x, y = ball(a), ball(b)
        return max(abs(x.re - y.re), abs(x.im - y.im)), x.rad + y.rad, max(x.size, y.size)


def _agree(a: Value, b: Value) -> bool:
    """Equal as far as can be seen, and that is far enough."""
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a == b
    gap, error, size = _difference(a, b)
    return gap <= error <= AGREEMENT * max(size, Decimal(1))


def precise(error: Fraction) -> bool:
    """True if an error bound is small enough for two equal values to be called equal."""
    return error <= AGREEMENT


def _is_zero(value: Value) -> bool:
    if isinstance(value, Fraction):
        return value == 0
    if max(abs(value.re), abs(value.im)) > value.rad:
        return False
    if value.rad > AGREEMENT:
        raise Unreadable
    return True


def _sign(value: Value) -> int:
    if isinstance(value, Fraction):
        return 1 if value > 0 else -1
    if abs(value.im) > value.rad or abs(value.re) <= value.rad:
        raise Unreadable
    return 1 if value.re > 0 else -1
