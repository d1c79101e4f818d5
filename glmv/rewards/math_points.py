"""The value of a tree at a point: an exact rational while it can be, else a ball that holds it."""

from collections.abc import Callable
from decimal import Decimal, InvalidOperation, Overflow, Underflow, localcontext
from fractions import Fraction
from functools import reduce

from glmv.rewards import math_ball as balls
from glmv.rewards import math_value
from glmv.rewards.math_ball import Ball, Undefined
from glmv.rewards.math_lex import Node, Unreadable

Value = Fraction | Ball
Point = dict[str, Fraction]


def value_at(node: Node, point: Point, imaginary: bool) -> Value | None:
    with localcontext(balls.CONTEXT):
        try:
            return _value(node, point, imaginary)
        except (Undefined, Overflow, Underflow, InvalidOperation, ZeroDivisionError):
            return None


def _value(node: Node, point: Point, imaginary: bool) -> Value:
    if node.kind == "num":
        return node.value
    if node.kind == "sym":
        return balls.I if node.name == "i" else point[node.name]
    if node.kind == "const":
        if node.name not in _CONSTANTS:
            raise Undefined
        return _CONSTANTS[node.name]()
    kind = node.name if node.kind == "call" else node.kind
    args = [_value(arg, point, imaginary) for arg in node.args]
    if node.kind == "pow" and node.args[0] == Node("const", name="e"):
        return balls.exp(ball(args[1]))
    exact = _exact(kind, args)
    if exact is not None:
        return exact
    rule = _RULES.get(kind)
    if kind in _INTEGERS_ONLY:
        raise Undefined
    if rule is None:
        raise Unreadable
    return rule(args, imaginary)


def _exact(kind: str, args: list[Value]) -> Fraction | None:
    """The exact value where there is one that is rational."""
    fractions = [arg for arg in args if isinstance(arg, Fraction)]
    if len(fractions) < len(args) or kind not in math_value.RULES or kind in _INEXACT:
        return None
    try:
        value = math_value.exactly(kind, fractions)
    except (Unreadable, ValueError):
        return None
    return value if isinstance(value, Fraction) else None


def ball(value: Value) -> Ball:
    return value if isinstance(value, Ball) else balls.from_fraction(value)


def divide(a: Value, b: Value) -> Value:
    if isinstance(a, Fraction) and isinstance(b, Fraction):
        return a / b
    return balls.mul(ball(a), balls.inverse(ball(b)))


def _power(args: list[Value], imaginary: bool) -> Value:
    base, exponent = args
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        if exponent <= 0 and isinstance(base, Fraction) and base == 0:
            raise Undefined
        return balls.power(ball(base), int(exponent))
    if exponent == Fraction(1, 2):
        return balls.sqrt(ball(base), imaginary)
    if isinstance(exponent, Fraction) and exponent.denominator in _ODD_ROOTS and not imaginary:
        return balls.odd_root_power(ball(base), exponent)
    return balls.real_power(ball(base), ball(exponent))


def _root(args: list[Value], imaginary: bool) -> Value:
    degree = args[1]
    if not isinstance(degree, Fraction) or degree.denominator != 1 or not 2 <= degree <= 16:
        raise Undefined
    return balls.root(ball(args[0]), int(degree), imaginary)


def _log(args: list[Value], imaginary: bool) -> Value:
    base, value = map(ball, args)
    return balls.mul(balls.ln(value), balls.inverse(balls.ln(base)))


Rule = Callable[[list[Value], bool], Value]


def _each(function: Callable[[Ball], Value]) -> Rule:
    return lambda args, imaginary: function(ball(args[0]))


def _reciprocal(function: Callable[[Ball], Ball]) -> Rule:
    return lambda args, imaginary: balls.inverse(function(ball(args[0])))


def _quotient(above: Callable[[Ball], Ball], below: Callable[[Ball], Ball]) -> Rule:
    return lambda args, imaginary: balls.mul(above(ball(args[0])), balls.inverse(below(ball(args[0]))))


_CONSTANTS: dict[str, Callable[[], Ball]] = {"pi": balls.pi, "e": balls.e}
# Values that math_value gives as floats, or in its own sense of the word.
_INEXACT = frozenset({"deg", "exp", "sin", "cos", "tan", "sec", "csc", "cot"})
_INTEGERS_ONLY = frozenset({"fact", "binom"})
_ODD_ROOTS = range(3, 16, 2)
_HUNDREDTH = balls.Ball(Decimal("0.01"), Decimal(0), Decimal(0))
_RULES: dict[str, Rule] = {
    "add": lambda args, _: reduce(balls.add, map(ball, args)),
    "mul": lambda args, _: reduce(balls.mul, map(ball, args)),
    "div": lambda args, _: balls.mul(ball(args[0]), balls.inverse(ball(args[1]))),
    "neg": _each(balls.neg),
    "pow": _power,
    "pct": _each(lambda a: balls.mul(a, _HUNDREDTH)),
    "deg": _each(lambda a: balls.mul(a, balls.mul(balls.pi(), balls.from_fraction(Fraction(1, 180))))),
    "abs": _each(balls.modulus),
    "floor": _each(lambda a: balls.step(a, lambda x: x.__floor__())),
    "ceil": _each(lambda a: balls.step(a, lambda x: x.__ceil__())),
    "sqrt": lambda args, imaginary: balls.sqrt(ball(args[0]), imaginary),
    "root": _root,
    "log": _log,
    "lg": lambda args, _: _log([Fraction(10), args[0]], False),
    "ln": _each(balls.ln),
    "exp": _each(balls.exp),
    "sin": _each(balls.sin),
    "cos": _each(balls.cos),
    "tan": _quotient(balls.sin, balls.cos),
    "cot": _quotient(balls.cos, balls.sin),
    "sec": _reciprocal(balls.cos),
    "csc": _reciprocal(balls.sin),
    "arcsin": _each(balls.arcsin),
    "arccos": _each(balls.arccos),
    "arctan": _each(balls.arctan),
}
