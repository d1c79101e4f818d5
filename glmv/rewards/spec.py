"""Checking the `reward_model` of a sample when a dataset is loaded, before anything is scored."""

from collections.abc import Mapping
from typing import Any

from glmv import check
from glmv.rewards import compose
from glmv.rewards.extract import SCHEMES
from glmv.rewards.verify import check_spec
from glmv.rewards.vero import route

DEFAULT_SCHEME = "glm"
NO_LABEL = "sail needs options.label or options.direct_accuracy"


def check_reward_model(spec: Mapping[str, Any]) -> None:
    """Raise ValueError if a sample with this `reward_model`, which names a kind, could never be scored."""
    scheme, kind = str(spec.get("scheme", DEFAULT_SCHEME)), str(spec.get("kind"))
    check.choice("reward_model", "scheme", scheme, tuple(SCHEMES))
    options: Mapping[str, Any] = spec.get("options") or {}
    if scheme == "vero":
        way = route(kind)
        kind, options = way.kind, {**way.defaults, **options}
    check_spec(kind, spec.get("ground_truth"), options)
    if scheme == "sail" and not compose.totals_of(options).label:
        raise ValueError(NO_LABEL)
