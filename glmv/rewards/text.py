"""Short answers to questions about an image or a clip: equal text, then equal number, then a judge."""

from collections.abc import Mapping
from typing import Any

from glmv.rewards import judge as judging
from glmv.rewards.math import compare_numbers, tolerance_of
from glmv.rewards.normal import canonical
from glmv.rewards.types import Judge, Score, SpecError

OPTIONS = frozenset({"rel_tol", "abs_tol", "exact_int"}) | judging.OPTIONS
MAX_CHARS = 16_384


def verify_text(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """vqa and video. Two numbers are compared as numbers (integers exactly) and never reach the judge."""
    target = check_reference(reference)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    if canonical(answer) == canonical(target):
        return Score(1.0, "ok", answer)
    same = compare_numbers(answer, target, tolerance_of(options, exact_int=True))
    if same is None:
        return judging.decide(answer, target, options, judge)
    return Score(1.0, "ok", answer) if same else Score(0.0, "wrong", answer)


def verify_judged(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """llm_judge: open-ended text, which a judge compares with the reference."""
    target = check_reference(reference)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    return judging.decide(answer, target, options, judge)


def check_reference(reference: object) -> str:
    """A text, or a number that is written as text."""
    if isinstance(reference, bool) or not isinstance(reference, str | int | float):
        raise SpecError(f"the reference must be a text or a number, got {reference!r}")
    return str(reference)
