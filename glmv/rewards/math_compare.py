"""Whether two trees are the same answer: numbers, expressions, relations, and collections of them."""

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from glmv.rewards import math_algebra as algebra
from glmv.rewards.matching import max_matching
from glmv.rewards.math_lex import Node, Unreadable
from glmv.rewards.math_value import Number, evaluate

MAX_ITEMS = 64
COLLECTIONS = ("list", "set", "tuple", "union", "matrix", "row")


@dataclass(frozen=True, slots=True)
class Tolerance:
    rel: Fraction
    abs: Fraction
    exact_int: bool


def same_number(got: Number, want: Number, tolerance: Tolerance) -> bool:
    """Equal as rationals, or within the tolerance of `want`."""
    a, r = Fraction(got), Fraction(want)
    if a == r:
        return True
    if tolerance.exact_int and a.denominator == 1 and r.denominator == 1:
        return False
    return abs(a - r) <= max(tolerance.rel * abs(r), tolerance.abs)


def same(got: Node, want: Node, tolerance: Tolerance) -> bool:
    """Whether two answers are equal. Raises Unreadable if that cannot be decided."""
    if got == want:
        return True
    if "rel" in (got.kind, want.kind):
        return _same_relation(got, want)
    if got.kind not in COLLECTIONS and want.kind not in COLLECTIONS:
        return _same_value(got, want, tolerance)
    kinds = {got.kind, want.kind}
    if max(len(got.args), len(want.args)) > MAX_ITEMS:
        raise Unreadable("too_long")
    if kinds <= {"list", "set"} or kinds == {"union"}:
        return _same_unordered(got, want, tolerance)
    if len(kinds) > 1 or len(got.args) != len(want.args) or got.name != want.name:
        return False
    return all(same(a, r, tolerance) for a, r in zip(got.args, want.args, strict=True))


def _same_value(got: Node, want: Node, tolerance: Tolerance) -> bool:
    infinite = _is_infinite(got), _is_infinite(want)
    if any(infinite):
        return all(infinite) and (got.kind == "neg") == (want.kind == "neg")
    if algebra.symbols(got) or algebra.symbols(want):
        return algebra.same_expression(got, want)
    try:
        return same_number(evaluate(got), evaluate(want), tolerance)
    except Unreadable as error:
        if error.reason != "unsupported":
            raise
    # Complex numbers, and sums that cancel: 3 + 4i, sin pi.
    imaginary = algebra.has_i(got) or algebra.has_i(want)
    gap, error_bound, size = algebra.distance(
        algebra.constant(got, imaginary), algebra.constant(want, imaginary)
    )
    allowed = max(tolerance.rel * size, tolerance.abs)
    if gap <= error_bound:
        return algebra.precise(error_bound)
    return gap + error_bound <= allowed


def _same_relation(got: Node, want: Node) -> bool:
    """Equal up to a constant factor: 3x - y = -5 is -3x + y = 5, and 3 < x is x > 3."""
    pair = [as_interval(node) if node.kind == "rel" else node for node in (got, want)]
    if {got.kind, want.kind} != {"rel"}:
        a, r = pair
        exact = Tolerance(Fraction(0), Fraction(0), True)
        return a is not None and r is not None and a.kind == r.kind == "tuple" and same(a, r, exact)
    if not algebra.symbols(got) or not algebra.symbols(want):
        raise Unreadable  # 29 = 30 says nothing
    if got.name != want.name or len(got.args) != len(want.args):
        return False
    factors = [algebra.proportional(_minus(got, at), _minus(want, at)) for at in range(len(got.args) - 1)]
    return all(factors) if got.name in ("=", "!=") else all(factor > 0 for factor in factors)


def _minus(relation: Node, at: int) -> Node:
    left, right = relation.args[at : at + 2]
    return Node("add", (left, Node("neg", (right,))))


def as_interval(relation: Node) -> Node | None:
    """x > 3 as (3, inf), 1 <= x < 3 as [1, 3); None for what is no interval of one letter."""
    infinity = Node("const", name="inf")
    sides, signs = list(relation.args), relation.name.split()
    if signs[0][0] != "<":
        return None
    if len(sides) == 2 and sides[0].kind == "sym":
        sides, signs = [Node("neg", (infinity,)), *sides], ["<", *signs]
    elif len(sides) == 2:
        sides, signs = [*sides, infinity], [*signs, "<"]
    low, middle, high = sides
    if middle.kind != "sym" or algebra.symbols(low) or algebra.symbols(high):
        return None
    brackets = ("[" if signs[0] == "<=" else "(") + ("]" if signs[1] == "<=" else ")")
    return Node("tuple", (low, high), brackets)


def _same_unordered(got: Node, want: Node, tolerance: Tolerance) -> bool:
    """Two lists hold the same values as often; as soon as one is a set, how often does not matter."""
    if not got.args or not want.args:
        return got.args == want.args
    pairs = np.array([[same(a, r, tolerance) for r in want.args] for a in got.args])
    if "set" in (got.kind, want.kind):
        return bool(pairs.any(0).all() and pairs.any(1).all())
    return len(got.args) == len(want.args) == max_matching(pairs)


def signed(node: Node) -> Node:
    """A plus-minus becomes the list of both values."""
    if not _has_sign(node):
        return node
    if node.kind in COLLECTIONS or node.kind == "rel":
        raise Unreadable
    return Node("list", (_with_sign(node, 1), _with_sign(node, -1)))


def _with_sign(node: Node, sign: int) -> Node:
    args = tuple(_with_sign(arg, sign) for arg in node.args)
    if node.kind not in ("pm", "mp"):
        return replace(node, args=args)
    return args[0] if (node.kind == "pm") == (sign == 1) else Node("neg", args)


def has_relation(node: Node) -> bool:
    """True for a relation, and for a list with one."""
    return node.kind == "rel" or (node.kind == "list" and any(map(has_relation, node.args)))


def _is_infinite(node: Node) -> bool:
    return (node.args[0] if node.kind == "neg" else node) == Node("const", name="inf")


def _has_sign(node: Node) -> bool:
    return node.kind in ("pm", "mp") or any(_has_sign(arg) for arg in node.args)
