"""From a whole response to its reward, by the rules of GLM-V: format gates accuracy."""

import math
from collections.abc import Mapping
from typing import Any

from glmv.data.types import Sample
from glmv.rewards import judge as judging
from glmv.rewards.extract import BEGIN, END, extract
from glmv.rewards.types import Judge, Reason, Reward, Score
from glmv.rewards.verify import verify

DEFAULT_SCHEME = "glm"


def score(response: str, sample: Sample, judge: Judge | None = None) -> Reward:
    """The reward of a response, decoded with its special tokens and without the end token.

    `sample.reward_model` holds `kind`, `ground_truth`, and optionally `options` and `scheme` ("glm"). A
    response without exactly one answer span scores 0: `parts["format"]` carries the reason, and
    `parts["accuracy"]` is 0 with reason "format". `options.verifiable = false` marks open-ended data: a judge
    reads the whole answer part, and a box marker in it is a format failure. The total is NaN if a judge gave
    no verdict. Raises ValueError for an unknown scheme.
    """
    spec = sample.reward_model
    found = extract(str(spec.get("scheme", DEFAULT_SCHEME)), response)
    options: Mapping[str, Any] = spec.get("options") or {}
    if options.get("verifiable", True) is False:
        return _open_ended(found.body, str(spec.get("ground_truth", "")), options, judge)
    if found.answer is None:
        return _unformatted(found.reason)
    accuracy = verify(str(spec.get("kind")), found.answer, spec.get("ground_truth"), options, judge)
    return _gated(accuracy)


def _open_ended(body: str, reference: str, options: Mapping[str, Any], judge: Judge | None) -> Reward:
    if not body or BEGIN in body or END in body:
        return _unformatted("format" if body else "malformed")
    return _gated(judging.decide(body, reference, options, judge))


def _unformatted(reason: Reason) -> Reward:
    return Reward(0.0, {"format": Score(0.0, reason), "accuracy": Score(0.0, "format")})


def _gated(accuracy: Score) -> Reward:
    total = math.nan if accuracy.value is None else accuracy.value
    return Reward(total, {"format": Score(1.0, "ok"), "accuracy": accuracy})
