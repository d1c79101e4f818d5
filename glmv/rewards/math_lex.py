"""Tokens and tree of the answer parser, and the limits that hold before any arithmetic is done."""

import re
from dataclasses import dataclass
from fractions import Fraction

from glmv.rewards.math_words import letters
from glmv.rewards.types import Reason

MAX_DEPTH, MAX_DIGITS, MAX_EXPONENT = 32, 200, 400


class Unreadable(Exception):
    """`reason` is unsupported, too_long or too_deep."""

    def __init__(self, reason: Reason = "unsupported") -> None:
        super().__init__(reason)
        self.reason: Reason = reason


@dataclass(frozen=True, slots=True)
class Node:
    """One operation and its operands.

    kind: num, const, sym, add, mul, div, neg, pow, pm, mp, fact, pct, deg, call (name is the function), tuple
    (name is its two brackets), list, set, union, matrix (args are of kind row), rel (name is one of
    = != < <=, or two of them for a chain of three).
    """

    kind: str
    args: tuple["Node", ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str  # num, mixed, cmd, word, op, end
    text: str
    value: Fraction | None = None


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<mixed>[0-9]+\s+[0-9]+\s*/\s*[0-9]+(?![0-9.]))
  | (?P<rep>[0-9]*\.[0-9]*\\overline\s*\{[0-9]+\})
  | (?P<based>(?=[0-9]|[A-F]{2})[0-9]*[A-F][0-9A-F]*_\s*\{\s*1[1-6]\s*\})
  | (?P<sci>(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+)
  | (?P<group>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?)
  | (?P<space>[0-9]{1,3}(?:\ [0-9]{3})+(?![0-9])(?:\.[0-9]+)?)
  | (?P<num>[0-9]+\.?[0-9]*|\.[0-9]+)
  | (?P<cmd>\\[A-Za-z]+|\\[{}\\|])
  | (?P<word>[A-Za-z]+)
  | (?P<op>\*\*|<=|>=|!=|[-+*/^_!%(){}\[\],;=<>|&]))""",
    re.VERBOSE,
)
_PLAIN_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_TEXT = re.compile(r"\\(?:text|mathrm|textrm|mathbf)\s*\{\s*([A-Za-z]+)\s*\}")
_ENVIRONMENT = re.compile(r"\\(begin|end)\s*\{[pb]?matrix\}")


def tokenize(text: str) -> list[Token]:
    """Tokens with an end marker. A comma groups thousands outside brackets only. Raises Unreadable."""
    text = _ENVIRONMENT.sub(r"\\\1matrix ", _TEXT.sub(r" \1 ", text))
    tokens: list[Token] = []
    at, depth, end = 0, 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unreadable
        kind, raw = match.lastgroup or "", match[0].strip()
        if kind == "group" and depth:
            match = _PLAIN_NUMBER.match(text, match.start("group"))
            assert match is not None
            kind, raw = "num", match[0]
        at = match.end()
        if raw in ("(", "[", "\\{", "{"):
            depth += raw != "{"
        elif raw in (")", "]", "\\}"):
            depth -= 1
        if depth > MAX_DEPTH:
            raise Unreadable("too_deep")
        tokens += map(_word, letters(raw)) if kind == "word" else [_token(kind, raw)]
    return [*tokens, Token("end", "")]


def _word(text: str) -> Token:
    return Token("word", text)


def _token(kind: str, raw: str) -> Token:
    if kind in ("cmd", "word", "op"):
        return Token(kind, raw)
    if kind == "mixed":
        return Token("mixed", raw, mixed(*(int(n) for n in re.findall("[0-9]{1,200}", raw)[:3])))
    if kind == "based":
        digits, _, base = raw.partition("_")
        return Token("mixed", raw, in_base(digits, int(base.strip("{} "))))
    if kind == "rep":
        return Token("mixed", raw, _repeating(raw))
    digits, _, exponent = raw.replace(",", "").replace(" ", "").lower().partition("e")
    if len(digits) > MAX_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MAX_EXPONENT:
        raise Unreadable("too_long")
    whole, _, decimals = digits.partition(".")
    value = Fraction(int(whole + decimals), 10 ** len(decimals))
    if exponent:
        value *= Fraction(10) ** int(exponent)
    return Token("num" if kind == "num" else "mixed", raw, value)


def mixed(whole: int, numerator: int, denominator: int) -> Fraction:
    """Whole and a proper fraction; 5 9/4 is no mixed number."""
    if not 0 < numerator < denominator:
        raise Unreadable
    return whole + Fraction(numerator, denominator)


def in_base(digits: str, base: int) -> Fraction:
    """The value of an integer in a base of 2 to 16."""
    if not 2 <= base <= 16 or any(int(digit, 16) >= base for digit in digits):
        raise Unreadable
    if len(digits) > MAX_DIGITS:
        raise Unreadable("too_long")
    return Fraction(int(digits, base))


def _repeating(raw: str) -> Fraction:
    if len(raw) > MAX_DIGITS:
        raise Unreadable("too_long")
    whole, _, rest = raw.partition(".")
    fixed, _, period = rest.partition("\\overline")
    period = period.strip(" {}")
    base = Fraction(int((whole + fixed) or 0), 10 ** len(fixed))
    return base + Fraction(int(period), 10 ** len(fixed) * (10 ** len(period) - 1))
