"""Reading text: the share of characters that are right, 1 - edit distance / longer length."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from rapidfuzz.distance import Levenshtein

from glmv.rewards import options as opt
from glmv.rewards.types import Judge, Score, SpecError, graded

OPTIONS = frozenset({"strip_ws", "ignore_case"})
# An answer beyond both bounds is at most 1/8 right; it is not compared, so that time stays bounded.
MAX_FACTOR = 8
MIN_LIMIT_CHARS = 65_536


def verify_ocr(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """Code points after NFC; `strip_ws` removes all white space, `ignore_case` folds case. Both empty: 1."""
    target = _prepare(check_reference(reference), options)
    if len(answer) > max(MIN_LIMIT_CHARS, MAX_FACTOR * len(target)):
        return Score(0.0, "too_long", answer)
    got = _prepare(answer, options)
    longer = max(len(got), len(target))
    if longer == 0:
        return Score(1.0, "ok", answer)
    if not got:
        return Score(0.0, "empty", answer)
    distance = Levenshtein.distance(got, target)
    return graded(1.0 - distance / longer, answer, {"distance": distance})


def check_reference(reference: object) -> str:
    if not isinstance(reference, str):
        raise SpecError(f"ocr: the reference must be a text, got {reference!r}")
    return reference


def _prepare(text: str, options: Mapping[str, Any]) -> str:
    if opt.flag(options, "ignore_case", False):
        text = text.casefold()
    if opt.flag(options, "strip_ws", False):
        text = "".join(text.split())
    return unicodedata.normalize("NFC", text)
