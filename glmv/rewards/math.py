"""Answers in mathematics: numbers, closed arithmetic, lists, sets, tuples, intervals and matrices of them.

Model text is read by a parser of our own and never evaluated as code. Rational values are compared exactly
first, then |a - r| <= rel_tol |r|. A list, a set or a range is never equal to one value. Expressions with
symbols are compared by their values (math_algebra); what that cannot decide is `unsupported`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from glmv.rewards import judge as judging
from glmv.rewards import options as opt
from glmv.rewards.math_compare import COLLECTIONS, Tolerance, has_relation, same, same_number, signed
from glmv.rewards.math_lex import Node, Unreadable
from glmv.rewards.math_parse import equation
from glmv.rewards.math_rules import parse
from glmv.rewards.math_text import MAX_CHARS, clean
from glmv.rewards.math_value import evaluate
from glmv.rewards.types import Judge, Reason, Score, SpecError

OPTIONS = frozenset({"rel_tol", "abs_tol", "exact_int", "literal"}) | judging.OPTIONS
DEFAULT_REL_TOL = 1e-5

_PLAIN = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_WORDS = re.compile(r"[A-Za-z]{3,}|[A-Za-z]{2,}(?: [A-Za-z]+)+")
_ANGLES = {"deg", "rad"}
_PROSE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[ ,;]+[A-Za-z]{2,}|[\u4e00-\u9fff]{6}")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says. `node` is None if it could not be read; `reason` says why."""

    text: str
    unit: str | None = None
    node: Node | None = None
    name: Node | None = None
    reason: Reason = "ok"


def verify_math(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """Score an answer in mathematics.

    Options: `rel_tol` (1e-5); `abs_tol` (0); `exact_int`: two integers must be equal (off); `literal`: only a
    numeral counts (off; without it "7 + 8" is a right answer to a question about the sum).
    A unit of the answer must be that of the reference if both state one. A reference in prose is compared
    as text, then given to the judge.
    """
    target = check_reference(reference)
    tolerance = tolerance_of(options)
    text = answer.strip()
    if not text:
        return Score(0.0, "empty", answer)
    if _NOT_FINITE.fullmatch(text) or (opt.flag(options, "literal", False) and plain_number(text) is None):
        return Score(0.0, "wrong", answer)
    if text == target.strip():
        return Score(1.0, "ok", answer)
    want, got = read(target.strip()), read(text)
    if _same_text(got, want):
        return Score(1.0, "ok", answer)
    if want.node is None and _PROSE.search(target):
        return judging.decide(answer, target, options, judge)
    if got.node is None or want.node is None:
        return Score(0.0, got.reason if got.reason != "ok" else "unsupported", answer)
    try:
        same = _same_answer(got, want, tolerance)
    except Unreadable as error:
        return Score(0.0, error.reason, answer)
    return Score(1.0, "ok", answer) if same else Score(0.0, "wrong", answer)


def check_reference(reference: object) -> str:
    if isinstance(reference, bool) or not isinstance(reference, str | int | float):
        raise SpecError(f"math: the reference must be a text or a number, got {reference!r}")
    return str(reference)


def tolerance_of(options: Mapping[str, Any], exact_int: bool = False, exact: bool = False) -> Tolerance:
    """The tolerance that the options ask for; `exact_int` is the default of that option."""
    rel, absolute = opt.number(options, "rel_tol", DEFAULT_REL_TOL), opt.number(options, "abs_tol", 0.0)
    if exact:
        rel = absolute = 0.0
    # By way of repr: 1e-5 means 1/100000, not the nearest binary fraction.
    return Tolerance(Fraction(repr(rel)), Fraction(repr(absolute)), opt.flag(options, "exact_int", exact_int))


def read(text: str) -> Reading:
    """Parse one stripped answer."""
    return Reading(text, reason="too_long") if len(text) > MAX_CHARS else _read(text)


# The answers of a group share a reference, and often each other. Only short texts get here.
@lru_cache(maxsize=8192)
def _read(text: str) -> Reading:
    if _PLAIN.fullmatch(text):
        return Reading(text, node=Node("num", value=Fraction(text)))
    body, unit = clean(text)
    try:
        node, name = parse(body)
    except Unreadable as error:
        return Reading(body, unit, reason=error.reason)
    return _with_degree(Reading(body, unit, node, name))


def _with_degree(reading: Reading) -> Reading:
    """An angle in degrees is a number with a unit: 45 and 45 degrees are both accepted for 45 degrees."""
    node = reading.node
    assert node is not None
    inner = node.args[0] if node.kind == "neg" else node
    if reading.unit or inner.kind != "deg":
        return reading
    bare = Node("neg", inner.args) if node.kind == "neg" else inner.args[0]
    return replace(reading, node=bare, unit="deg")


def compare_numbers(answer: str, reference: str, tolerance: Tolerance) -> bool | None:
    """Whether two texts are the same number; None if one is no plain number, or if their units differ."""
    got, want = _literal(answer), _literal(reference)
    if got is None or want is None or not _units_agree(got[1], want[1]):
        return None
    return same_number(got[0], want[0], tolerance)


def plain_number(text: str) -> Fraction | None:
    """The value of a text that is one numeral: 012, 1,045, -3/4, 2 1/2, 25 %, with or without a unit."""
    found = _literal(text)
    return found[0] if found else None


def is_list(text: str) -> bool:
    """True if the text names several values."""
    node = read(text.strip()).node
    return node is not None and node.kind in COLLECTIONS


def _literal(text: str) -> tuple[Fraction, str | None] | None:
    reading = read(text.strip())
    node = reading.node
    if node is None or reading.name is not None:
        return None
    plain = node.kind in ("num", "pct", "div", "neg") and all(
        arg.kind in ("num", "pct", "div") and all(part.kind == "num" for part in arg.args)
        for arg in node.args
    )
    if not plain:
        return None
    try:
        value = evaluate(node)
    except Unreadable:
        return None
    return (value, reading.unit) if isinstance(value, Fraction) else None


def _units_agree(got: str | None, want: str | None) -> bool:
    return got is None or want is None or got == want


def _same_text(got: Reading, want: Reading) -> bool:
    a, r = " ".join(got.text.split()), " ".join(want.text.split())
    if _WORDS.fullmatch(a):
        a, r = a.casefold(), r.casefold()
    return a == r and _units_agree(got.unit, want.unit)


def _same_answer(got: Reading, want: Reading, tolerance: Tolerance) -> bool:
    assert got.node is not None
    assert want.node is not None
    if not _units_agree(got.unit, want.unit) and {got.unit, want.unit} != _ANGLES:
        return False
    a, r = signed(got.node), signed(want.node)
    if (
        has_relation(a)
        or has_relation(r)
        or (got.name is not None and want.name is not None and got.name != want.name)
    ):
        a, r = equation(a, got.name), equation(r, want.name)
    if {got.unit, want.unit} != _ANGLES and same(a, r, tolerance):
        return True
    if got.unit == want.unit or "deg" not in (got.unit, want.unit):
        return False
    a, r = (Node("deg", (n,)) if unit == "deg" else n for n, unit in ((a, got.unit), (r, want.unit)))
    return same(a, r, tolerance)  # degrees on one side, radians on the other
