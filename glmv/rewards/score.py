"""From a whole response to its reward, by the rules of GLM-V, Vero or SAIL-RL: format gates accuracy."""

import math
from collections.abc import Mapping
from typing import Any

from glmv.data.types import Sample
from glmv.rewards import compose
from glmv.rewards import judge as judging
from glmv.rewards.extract import BEGIN, END, extract
from glmv.rewards.sail_checks import think_checks
from glmv.rewards.spec import DEFAULT_SCHEME, NO_LABEL
from glmv.rewards.style import style
from glmv.rewards.types import Extraction, Judge, Reason, Reward, Score, SpecError
from glmv.rewards.verify import OPEN_KINDS, verify
from glmv.rewards.vero import route


def score(response: str, sample: Sample, judge: Judge | None = None, length: int | None = None) -> Reward:
    """The reward of a response, decoded with its special tokens and without the end token.

    `sample.reward_model` holds `kind`, `ground_truth`, and optionally `options` and `scheme`: "glm" (with
    "glm-4.1v" and "glm-4.5v"), "vero" or "sail". `parts["format"]` says whether an answer could be extracted,
    and why not; without it `parts["accuracy"]` is 0 with reason "format". The total is NaN if a judge gave
    no verdict. `length` is the response length in tokens, which Vero's overlong penalty needs.

    "glm": accuracy less a style penalty; `options.verifiable = false` marks open-ended data: a judge reads
    the whole answer part, and a box marker in it is a format failure. "vero": `kind` is one of ours or one of
    Vero's reward types. "sail": `options` hold `label` or `direct_accuracy`, and `checks` unless a judge
    makes them. Raises ValueError for an unknown scheme, or if `length` is needed and missing.
    """
    scheme = str(sample.reward_model.get("scheme", DEFAULT_SCHEME))
    options: Mapping[str, Any] = sample.reward_model.get("options") or {}
    found = extract(scheme, response)
    try:
        totals = compose.totals_of(options)
    except SpecError as error:
        bad = Score(0.0, "unsupported", details={"spec": str(error)})
        return Reward(0.0, {"format": Score(float(found.answer is not None), found.reason), "accuracy": bad})
    if scheme == "vero":
        return _vero(found, sample, options, totals, judge, length)
    if scheme == "sail":
        return _sail(found, sample, options, totals, judge)
    return _glm(found, sample, options, totals, judge)


# -- GLM-V -------------------------------------------------------------------------------------------------


def _glm(
    found: Extraction, sample: Sample, options: Mapping[str, Any], totals: compose.Totals, judge: Judge | None
) -> Reward:
    spec = sample.reward_model
    kind, reference = str(spec.get("kind")), spec.get("ground_truth")
    form, accuracy = Score(1.0, "ok"), Score(0.0, "format")
    if options.get("verifiable", True) is False or kind in OPEN_KINDS:
        if not found.body or BEGIN in found.body or END in found.body:
            form = Score(0.0, "format" if found.body else "malformed")
        elif kind in OPEN_KINDS:
            accuracy = verify(kind, found.body, reference, options, judge)
        else:
            accuracy = judging.decide(found.body, str(reference or ""), options, judge)
    elif found.answer is None:
        form = Score(0.0, found.reason)
    else:
        accuracy = verify(kind, found.answer, reference, options, judge)
    manner = style(found.thinking, found.body)
    total = compose.glm_total(_number(accuracy), _number(manner), totals.style_penalty)
    return Reward(total, {"format": form, "accuracy": accuracy, "style": manner})


# -- Vero --------------------------------------------------------------------------------------------------


def _vero(
    found: Extraction,
    sample: Sample,
    options: Mapping[str, Any],
    totals: compose.Totals,
    judge: Judge | None,
    length: int | None,
) -> Reward:
    spec = sample.reward_model
    verifier = route(str(spec.get("kind")))
    form, accuracy = _vero_format(found, verifier.boxed), Score(0.0, "format")
    answer = found.answer if verifier.boxed else found.body
    if answer and form.value == 1:
        accuracy = verifier.run(answer, spec.get("ground_truth"), options, judge)
    parts, penalty = {"format": form, "accuracy": accuracy}, 0.0
    if totals.max_length:
        if length is None:
            raise ValueError("score: length, the number of response tokens, is needed with options.max_len")
        penalty = compose.overlong(length, totals.max_length, totals.buffer, totals.factor)
        reason: Reason = "too_long" if penalty < 0 else "ok"
        parts["overlong"] = Score(max(1.0 + penalty, 0.0), reason, details={"penalty": penalty})
    total = compose.vero_total(_number(accuracy), _number(form), penalty, totals.alpha)
    return Reward(total, parts)


def _vero_format(found: Extraction, boxed: bool) -> Score:
    """1; 0.5 if everything but the box is in order; else 0."""
    if not found.body:
        return Score(0.0, found.reason)
    return Score(0.5, found.reason) if boxed and found.answer is None else Score(1.0, "ok")


# -- SAIL-RL -----------------------------------------------------------------------------------------------


def _sail(
    found: Extraction, sample: Sample, options: Mapping[str, Any], totals: compose.Totals, judge: Judge | None
) -> Reward:
    """The thinking part is checked only where it counts: after a right decision and a right answer."""
    spec = sample.reward_model
    if not totals.label:
        bad = Score(0.0, "unsupported", details={"spec": NO_LABEL})
        return Reward(0.0, {"format": Score(float(found.answer is not None), found.reason), "accuracy": bad})
    if found.answer is None:
        return Reward(0.0, {"format": Score(0.0, found.reason), "accuracy": Score(0.0, "format")})
    right = found.decision == totals.label
    decision = Score(float(right), "ok" if right else "wrong", found.decision)
    accuracy = verify(str(spec.get("kind")), found.answer, spec.get("ground_truth"), options, judge)
    parts = {"format": Score(1.0, "ok"), "decision": decision, "accuracy": accuracy}
    thought = 0.0
    if right and accuracy.value != 0:
        parts["thinking"] = _thinking(found, sample, totals, judge)
        thought = _number(parts["thinking"])
    total = compose.sail_total(float(right), thought, _number(accuracy) if right else 0.0, 1.0)
    return Reward(total, parts)


def _thinking(found: Extraction, sample: Sample, totals: compose.Totals, judge: Judge | None) -> Score:
    if found.decision == "direct" or totals.checks is not None:
        value = compose.sail_thinking(found.decision, found.thinking, totals.checks or ())
        return Score(value, "ok" if value == 1 else "partial" if value else "wrong")
    question = "\n".join(str(turn.get("content", "")) for turn in sample.prompt if turn.get("role") == "user")
    return think_checks(question, found.thinking, found.answer or "", judge)


def _number(part: Score) -> float:
    return math.nan if part.value is None else part.value
