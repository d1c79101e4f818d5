"""Physics and chemistry: quantities with units, formulas and short texts.

The rule decides what it can read on both sides: a number without a unit, or with a unit of the closed table.
The rest is compared as text and then given to the judge.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

from glmv.rewards import judge as judging
from glmv.rewards import math as maths
from glmv.rewards.math_compare import Tolerance, same_number
from glmv.rewards.math_lex import Unreadable
from glmv.rewards.math_text import plain
from glmv.rewards.math_value import Number, evaluate
from glmv.rewards.text import check_reference
from glmv.rewards.types import Judge, Score
from glmv.rewards.units import Unit, read_unit

OPTIONS = frozenset({"rel_tol", "abs_tol", "exact_int"}) | judging.OPTIONS
MAX_CHARS = 16_384
MAX_QUANTITY_CHARS = 200

_MICRO_AND_OHM = str.maketrans(
    {"\u03bc": "u", "\u00b5": "u", "\u2126": "ohm", "\u03a9": "ohm", "\u2103": "°C", "\u2109": "°F"}
)
_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textrm|mbox|rm|operatorname|ce|si|unit)\s*\{([^{}]*)\}")
_UNIT_COMMANDS = {
    "\\mu": "u", "\\Omega": "ohm", "^{\\circ}": "°", "^\\circ": "°", "\\circ": "°", "\\degree": "°",
    "\\cdot": "*", "\\times": "*", "\\,": " ", "\\;": " ", "\\ ": " ", "\\!": "", "~": " ", "\\quad": " ",
}  # fmt: skip
_ABOUT = re.compile(r"^(?:\\approx|\\sim|≈|~)\s*")
# Where a unit may begin: after a digit, a brace, a bracket, a percent sign or a constant, or a space.
_SPLIT = re.compile(
    r"(?<=[0-9)}\]!.])(?=[A-Za-z\u4e00-\u9fff°℃℉Å(/\\])|\s+(?=[A-Za-z\u4e00-\u9fff°℃℉Å1(/\\])"
)
_DEGREE = re.compile(r"\^\s*\{?\s*\\circ\s*\}?")
_EXPONENT = re.compile(r"\^\s*\{\s*([+-]?[0-9]{1,2})\s*\}")
_LOWERED = re.compile(r"_\{([^{}]*)\}|_(\w)")
_RAISED = re.compile(r"\^\{(\w)\}")
_SPACE = re.compile(r"(?<![0-9])\s+|\s+(?![0-9])")
_PLAIN_WORDS = re.compile(r"[^\W\d_]{3,}(?:[ -][^\W\d_]+)*")
_SINGLE = ("num", "const", "add", "mul", "div", "neg", "pow", "call", "pct", "fact")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number; the text of its unit ("" if it has none), and the unit if the table holds it."""

    value: Number
    unit_text: str = ""
    unit: Unit | None = None


def verify_physics(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """Numbers with units, and formulas in symbols, which are compared like answers in mathematics."""
    return _verify(answer, reference, options, judge, symbols=True)


def verify_chemistry(
    answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None
) -> Score:
    """Numbers with units; formulas of substances as text, in which case and order of the letters matter."""
    return _verify(answer, reference, options, judge, symbols=False)


def _verify(
    answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None, symbols: bool
) -> Score:
    target = check_reference(reference)
    tolerance = maths.tolerance_of(options)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    if formula_text(answer) == formula_text(target):
        return Score(1.0, "ok", answer)
    want, got = read_quantity(target), read_quantity(answer)
    if want is not None and got is not None:
        same = _compare(got, want, tolerance)
        converted = same is True and got.unit != want.unit
        # Which unit was asked for is known to a judge alone; without one the conversion decides.
        if same is not None and not (converted and judge is not None):
            return Score(1.0, "ok", answer) if same else Score(0.0, "wrong", answer)
    elif want is not None and maths.is_list(answer):
        return Score(0.0, "wrong", answer)
    elif want is None and symbols:
        verdict = maths.verify_math(answer, target, {**options, "judge": False}, None)
        if verdict.value == 1:
            return Score(1.0, "ok", answer)
    return judging.decide(answer, target, options, judge)


def formula_text(text: str) -> str:
    """The form in which two texts are the same: H_2O, H₂O and \\mathrm{H_2O}; case counts, but for words."""
    text = plain(_TEXT_COMMAND.sub(r"\1", text.strip())).strip().rstrip(".。")
    if _PLAIN_WORDS.fullmatch(text):
        return " ".join(text.casefold().split())
    return _SPACE.sub("", _RAISED.sub(r"^\1", _LOWERED.sub(r"\1\2", text)))


def read_quantity(text: str) -> Quantity | None:
    """The quantity that a text is, or None."""
    text = text.strip()
    return _read(text) if len(text) <= MAX_QUANTITY_CHARS else None


@lru_cache(maxsize=4096)
def _read(text: str) -> Quantity | None:
    text = _DEGREE.sub(" °", plain(_ABOUT.sub("", text.translate(_MICRO_AND_OHM))))
    bare = _number(text)
    if bare is not None:
        return Quantity(bare)
    unknown: Quantity | None = None
    for split in _SPLIT.finditer(text):
        value = _number(text[: split.start()])
        if value is None:
            continue
        unit_text = _unit_text(text[split.end() :])
        unit = read_unit(unit_text)
        if unit is not None:
            return Quantity(value, unit_text, unit)
        unknown = Quantity(value, unit_text)  # the last is that of the longest number
    return unknown


def _unit_text(text: str) -> str:
    text = _TEXT_COMMAND.sub(r"\1", _EXPONENT.sub(r"^\1", text))
    for command, sign in _UNIT_COMMANDS.items():
        text = text.replace(command, sign)
    return " ".join(text.strip(" .。").split())


def _number(text: str) -> Number | None:
    """The value of one number or closed expression without a unit."""
    reading = maths.read(text.strip())
    if reading.node is None or reading.unit or reading.node.kind not in _SINGLE:
        return None
    try:
        return evaluate(reading.node)
    except Unreadable:
        return None


def _compare(got: Quantity, want: Quantity, tolerance: Tolerance) -> bool | None:
    """Whether both are the same quantity; None if the rule cannot say."""
    if not got.unit_text or not want.unit_text:
        same = same_number(got.value, want.value, tolerance)
        if got.unit_text and not want.unit_text:
            return None if same else False
        return same and got.unit_text == want.unit_text
    if got.unit is None or want.unit is None:
        if got.unit_text != want.unit_text:
            return None
        return same_number(got.value, want.value, tolerance)
    if got.unit.dimension != want.unit.dimension:
        return False
    base = Fraction(got.value) * got.unit.factor + got.unit.offset
    return same_number((base - want.unit.offset) / want.unit.factor, want.value, tolerance)
