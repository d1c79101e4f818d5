"""One step of a web agent: the weighted share of its fields that match."""

import math
from collections.abc import Mapping
from typing import Any

from glmv.rewards import strict_json
from glmv.rewards.action import is_nothing, read_action, reference_action, same_value
from glmv.rewards.types import Judge, Score, SpecError, graded

OPTIONS = frozenset({"weights"})


def verify_webaction(
    answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None
) -> Score:
    """The answer is one JSON object, such as `{"ACTION": "TYPE", "MARK": 4, "VALUE": "green tea"}`.

    `weights` maps fields to their weights; without it all fields that the reference uses weigh the same.
    Case of keys and values does not matter; a list of candidates is no value; JSON is not repaired.
    """
    target = reference_action(reference, "webaction")
    weights = _weights(target, options)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    try:
        fields = read_action(answer)
    except strict_json.JsonError as error:
        return Score(0.0, error.reason, answer)
    met = [name for name in weights if same_value(fields.get(name), target.get(name))]
    value = sum(weights[name] for name in met) / sum(weights.values())
    return graded(1.0 if len(met) == len(weights) else value, answer, {"fields": met})


def check_reference(reference: object) -> dict[str, Any]:
    return reference_action(reference, "webaction")


def _weights(target: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, float]:
    given = options.get("weights")
    if given is None:
        used = {name: 1.0 for name, value in target.items() if not is_nothing(value)}
        if not used:
            raise SpecError(f"webaction: the reference has no field with a value, got {dict(target)!r}")
        return used
    if not isinstance(given, dict) or not given:
        raise SpecError(f"options.weights must map fields to weights, got {given!r}")
    weights = {str(name).strip().casefold(): weight for name, weight in given.items()}
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 < weight < math.inf:
            raise SpecError(f"options.weights must be positive numbers, got {weight!r}")
        if name not in target:
            raise SpecError(f"options.weights names {name!r}, which the reference does not have")
    return weights
