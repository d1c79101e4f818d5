"""Values read off a chart: years exactly, other numbers within a tolerance, text exactly or by a judge."""

from collections.abc import Mapping
from typing import Any

from glmv.rewards import judge as judging
from glmv.rewards import options as opt
from glmv.rewards.math import compare_numbers, is_list, plain_number, tolerance_of
from glmv.rewards.normal import canonical
from glmv.rewards.text import MAX_CHARS, check_reference
from glmv.rewards.types import Judge, Score

OPTIONS = frozenset({"rel_tol", "abs_tol", "exact_int", "answer_type"}) | judging.OPTIONS
YEARS = range(1000, 3000)


def verify_chart(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """`answer_type` year: 2010 and 2010.0 are the same, 2011 is wrong whatever the tolerance."""
    target = check_reference(reference)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    kind = opt.choice(options, "answer_type", ("year", "number", "text"), "number")
    value = None if kind == "text" else plain_number(target)
    if value is not None:
        exact = kind == "year" and value in YEARS
        same = compare_numbers(answer, target, tolerance_of(options, exact=exact))
        if same is not None:
            return Score(1.0, "ok", answer) if same else Score(0.0, "wrong", answer)
        if is_list(answer):
            return Score(0.0, "wrong", answer)
    if canonical(answer) == canonical(target):
        return Score(1.0, "ok", answer)
    return judging.decide(answer, target, options, judge)
