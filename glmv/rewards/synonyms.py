"""Names: an answer is right if it is one of the accepted spellings of the reference."""

import re
import unicodedata
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from glmv.rewards.math import compare_numbers
from glmv.rewards.math_compare import Tolerance
from glmv.rewards.normal import canonical
from glmv.rewards.types import Judge, Score, SpecError

OPTIONS: frozenset[str] = frozenset()
MAX_CHARS = 2_048

# Compatibility forms that are the same letters; super- and subscripts, circled digits and vulgar fractions
# are other characters, so they stay.
_COMPATIBLE = "<compat>"
_ACCENTS = range(0x300, 0x370)
_ACCENTED = ("LATIN", "GREEK")
_NUMBER = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:[, ][0-9]{3})*(?:\.[0-9]+)?")
_ARTICLE = re.compile(r"^(?:the|an?)\s+(?=\S)")
_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00b4": "'"})
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_INITIALS = re.compile(r"(?<![^\W\d_])(?:[^\W\d_]\.){2,}")
_COMMA = re.compile(r"(?<![0-9]),|,(?![0-9])")
_EXACT = Tolerance(Fraction(0), Fraction(0), exact_int=True)


def verify_list(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """The reference is a list of synonyms (or one name). Width, case, accents, a leading article and a final
    stop do not matter; signs, `+` and `#` do: "C++" is not "C". Several names are no name.
    """
    names = check_reference(reference)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    said = normal(answer)
    right = any(said == normal(name) or _same_number(answer, name) for name in names)
    return Score(1.0, "ok", answer) if said and right else Score(0.0, "wrong", answer)


def normal(text: str) -> str:
    """The form in which two names are compared."""
    text = canonical("".join(map(_compatible, text.translate(_QUOTES))))
    text = _without_accents(text).rstrip("!?;:,. ")
    text = _INITIALS.sub(lambda found: found[0].replace(".", ""), text)
    text = _BETWEEN_LETTERS.sub(" ", _COMMA.sub(" ", text)).replace("&", " and ")
    return " ".join(_ARTICLE.sub("", text).split())


def check_reference(reference: object) -> list[str]:
    names = [reference] if isinstance(reference, str | int | float) else reference
    if not isinstance(names, list) or not names:
        raise SpecError(f"list: the reference must be a list of texts, got {reference!r}")
    if any(isinstance(name, bool) or not isinstance(name, str | int | float) for name in names):
        raise SpecError(f"list: the reference must be a list of texts, got {reference!r}")
    if not all(str(name).strip() for name in names):
        raise SpecError(f"list: a synonym must not be blank, got {reference!r}")
    return [str(name) for name in names]


def _same_number(answer: str, name: str) -> bool:
    texts = canonical(answer), canonical(name)
    plain = all(_NUMBER.fullmatch(text) for text in texts)
    return plain and compare_numbers(*texts, _EXACT) is True


def _compatible(char: str) -> str:
    if char.isascii() or not unicodedata.decomposition(char).startswith(_COMPATIBLE):
        return char
    return unicodedata.normalize("NFKC", char)


def _without_accents(text: str) -> str:
    """Latin and Greek letters without their marks; in other scripts a mark makes another letter."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", "".join(map(_base, unicodedata.normalize("NFC", text))))


def _base(char: str) -> str:
    if not unicodedata.name(char, "").startswith(_ACCENTED):
        return "" if ord(char) in _ACCENTS else char
    return "".join(c for c in unicodedata.normalize("NFD", char) if ord(c) not in _ACCENTS)
