"""The value of a tree without symbols: exact while it is rational, else a float that is known to be good.

A float result is refused where rounding could matter at the tolerances in use: a sum that cancels, an
argument too large for a periodic function, a value too near to the jump of floor. What is refused is
neither right nor wrong, but unsupported.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from glmv.rewards.math_lex import MAX_EXPONENT, Node, Unreadable

Number = Fraction | float

MAX_BITS = 16_384
MAX_FACTORIAL = 1000
# Floats are good to about 1e-14 here; a sum that falls below this share of its terms is not good enough.
CANCELLATION = 1e-8
MAX_ANGLE = 1e6
_TINY, _HUGE = 1e-300, 1e300


def evaluate(node: Node) -> Number:
    """The value of `node`. Raises Unreadable."""
    if node.kind == "num":
        return node.value
    if node.kind == "const" and node.name in _CONSTANTS:
        return _CONSTANTS[node.name]
    rule = RULES.get(node.name if node.kind == "call" else node.kind)
    if rule is None:
        raise Unreadable
    args = [evaluate(arg) for arg in node.args]
    try:
        return _checked(rule(*args))
    except (ZeroDivisionError, OverflowError):
        raise Unreadable from None


def exactly(kind: str, args: Sequence[Fraction]) -> Number:
    """One operation on rational numbers, by the name of its rule. Raises Unreadable, ZeroDivisionError."""
    try:
        return _checked(RULES[kind](*args))
    except OverflowError:
        raise Unreadable from None


def _checked(value: Number) -> Number:
    if isinstance(value, Fraction):
        if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise Unreadable("too_long")
    elif not _TINY < abs(value) < _HUGE:
        raise Unreadable
    return value


def _add(*terms: Number) -> Number:
    if all(isinstance(term, Fraction) for term in terms):
        return sum(terms, Fraction(0))
    floats = [float(term) for term in terms]
    total = math.fsum(floats)
    if abs(total) < CANCELLATION * max(map(abs, floats)):
        raise Unreadable
    return total


def _mul(*factors: Number) -> Number:
    product: Number = Fraction(1)
    for factor in factors:
        if factor == 0:
            return Fraction(0)
        product = _checked(product * factor)
    return product


def _div(a: Number, b: Number) -> Number:
    return a / b


def _pow(base: Number, exponent: Number) -> Number:
    if not -MAX_EXPONENT <= exponent <= MAX_EXPONENT:
        raise Unreadable("too_long")
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        power = int(exponent)
        if power <= 0 and base == 0:
            raise Unreadable
        if isinstance(base, Fraction):
            bits = max(base.numerator.bit_length(), base.denominator.bit_length())
            if bits * abs(power) > MAX_BITS:
                raise Unreadable("too_long")
        return base**power
    if base <= 0:
        raise Unreadable
    return math.pow(base, exponent)


def _root(value: Number, degree: Number = Fraction(2)) -> Number:
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 2 <= degree <= 16 or value < 0:
        raise Unreadable
    if isinstance(value, Fraction):
        above, below = (_exact_root(part, int(degree)) for part in (value.numerator, value.denominator))
        if above is not None and below is not None:
            return Fraction(above, below)
    return math.pow(value, 1 / degree)


def _exact_root(value: int, degree: int) -> int | None:
    if value.bit_length() > 900:  # beyond the range of a float, whose root is the first guess
        return None
    guess = round(math.pow(value, 1 / degree))
    for root in (guess - 1, guess, guess + 1):
        if root >= 0 and root**degree == value:
            return root
    return None


def _factorial(n: Number) -> Number:
    return Fraction(math.factorial(_small_natural(n)))


def _binomial(n: Number, k: Number) -> Number:
    return Fraction(math.comb(_small_natural(n), _small_natural(k)))


def _small_natural(n: Number) -> int:
    if not isinstance(n, Fraction) or n.denominator != 1 or not 0 <= n <= MAX_FACTORIAL:
        raise Unreadable
    return int(n)


def _step(function: Callable[[Number], int]) -> Callable[[Number], Number]:
    def apply(value: Number) -> Number:
        if isinstance(value, float) and abs(value - round(value)) < CANCELLATION * max(1.0, abs(value)):
            raise Unreadable
        return Fraction(function(value))

    return apply


def _periodic(function: Callable[[float], float]) -> Callable[[Number], Number]:
    def apply(angle: Number) -> Number:
        value = function(float(angle))
        if value == angle == 0:
            return Fraction(0)
        if not -MAX_ANGLE <= angle <= MAX_ANGLE or not CANCELLATION < abs(value) < 1 / CANCELLATION:
            raise Unreadable
        return value

    return apply


def _domain(function: Callable[[float], float]) -> Callable[[Number], Number]:
    """A function that is smooth but has a domain; a result near zero is refused like any cancellation."""

    def apply(value: Number) -> Number:
        try:
            result = function(float(value))
        except ValueError:
            raise Unreadable from None
        if result == 0 and value in (0, 1):  # ln 1, arcsin 0, arccos 1, arctan 0
            return Fraction(0)
        if abs(result) < CANCELLATION:
            raise Unreadable
        return result

    return apply


def _log(base: Number, value: Number) -> Number:
    if isinstance(base, Fraction) and isinstance(value, Fraction) and base > 1 and value > 0:
        power = round(_domain(math.log)(value) / _domain(math.log)(base)) if value != 1 else 0
        if abs(power) <= MAX_EXPONENT and base**power == value:
            return Fraction(power)
    return _domain(math.log)(value) / _domain(math.log)(base)


_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}
RULES: dict[str, Callable[..., Number]] = {
    "add": _add, "mul": _mul, "div": _div, "pow": _pow, "fact": _factorial, "binom": _binomial,
    "neg": lambda a: -a,
    "pct": lambda a: a / 100, "deg": lambda a: a * math.pi / 180, "abs": abs,
    "floor": _step(math.floor), "ceil": _step(math.ceil), "sqrt": _root, "root": _root, "log": _log,
    "ln": _domain(math.log), "lg": lambda a: _log(Fraction(10), a), "exp": lambda a: math.exp(a),
    "sin": _periodic(math.sin), "cos": _periodic(math.cos), "tan": _periodic(math.tan),
    "sec": _periodic(lambda a: 1 / math.cos(a)), "csc": _periodic(lambda a: 1 / math.sin(a)),
    "cot": _periodic(lambda a: 1 / math.tan(a)), "arcsin": _domain(math.asin),
    "arccos": _domain(math.acos), "arctan": _domain(math.atan),
}  # fmt: skip
