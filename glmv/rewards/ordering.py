"""Putting things in order: 1 for the right order, a discount if only the set is right."""

import re
from collections.abc import Mapping
from typing import Any

from glmv.rewards import options as opt
from glmv.rewards.normal import canonical, fold
from glmv.rewards.types import Judge, Score, SpecError

OPTIONS = frozenset({"discount"})
DEFAULT_DISCOUNT = 0.2
MAX_CHARS = 4_096

_ARROWS = re.compile(r"\\(?:rightarrow|to|Rightarrow|longrightarrow)(?![A-Za-z])|->|-->|=>|[→⇒➔➜⟶➡>]\ufe0f?")
# White space is collapsed before these are tried.
_WORDS = re.compile(r" ?[,;、，；]? (?:and then|then|and) |[,;、] ?(?:and then|then|and) ")
_SEPARATOR = re.compile(r"\s*(?:\x00|[,;、，；])\s*")
_HYPHENS = re.compile(r"[0-9]+(?:\s*-\s*[0-9]+)+|[A-Za-z](?:\s*-\s*[A-Za-z])+")
_LETTERS = re.compile(r"[A-Za-z]{2,}")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_BRACKETS = ("[]", "()", "{}", "$$", '""', "''", "``")


def verify_ordering(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """Items stand between commas, arrows, `>`, white space or hyphens ("3-1-4-2"); brackets may enclose them.

    The reference is a list of numbers or texts. `discount` (0.2) is the score of the right items in a wrong
    order; items that are missing, added or repeated score 0, as do two alternatives.
    """
    target = check_reference(reference)
    discount = opt.number(options, "discount", DEFAULT_DISCOUNT, high=1.0)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    items = parse(answer, target)
    if items == target:
        return Score(1.0, "ok", answer)
    if discount and sorted(items) == sorted(target):
        return Score(discount, "ok" if discount == 1 else "partial", answer)
    return Score(0.0, "wrong", answer)


def check_reference(reference: object) -> list[str]:
    """The items in order, each in the form in which items are compared."""
    if not isinstance(reference, list) or not reference:
        raise SpecError(f"ordering: the reference must be a list of numbers or texts, got {reference!r}")
    if any(isinstance(item, bool) or not isinstance(item, str | int) for item in reference):
        raise SpecError(f"ordering: the reference must be a list of numbers or texts, got {reference!r}")
    return [_item(str(item)) for item in reference]


def parse(answer: str, target: list[str]) -> list[str]:
    """The items of an answer. White space, hyphens and nothing at all separate items where they can."""
    text = _unwrap(" ".join(fold(answer).split()))
    if _HYPHENS.fullmatch(text) and canonical(text) not in target:
        return [_item(part) for part in text.split("-")]
    letters = all(len(item) == 1 and item.isalpha() for item in target)
    if letters and len(target) > 1 and _LETTERS.fullmatch(text):
        return [_item(letter) for letter in text]
    text = _ARROWS.sub("\0", text)
    parts = _SEPARATOR.split(_WORDS.sub("\0", text))
    if len(parts) == 1:
        parts = text.split()
    return [_item(part) for part in parts]


def _item(text: str) -> str:
    text = canonical(text)
    return str(int(text)) if _INTEGER.fullmatch(text) else text


def _unwrap(text: str) -> str:
    for _ in range(4):
        text = text.rstrip(".。").strip()
        for pair in _BRACKETS:
            inner = text[1:-1]
            if len(text) > 2 and text[0] + text[-1] == pair and pair[0] not in inner:
                text = inner.strip()
    return text
