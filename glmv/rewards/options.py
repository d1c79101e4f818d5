"""Reading the options of a sample: a wrong type or range is an error that names the key."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from glmv.rewards.types import SpecError


def flag(options: Mapping[str, Any], name: str, default: bool) -> bool:
    value = options.get(name, default)
    if not isinstance(value, bool):
        raise SpecError(f"options.{name} must be true or false, got {value!r}")
    return value


def number(options: Mapping[str, Any], name: str, default: float, high: float = math.inf) -> float:
    """A finite number in [0, high]."""
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
        raise SpecError(f"options.{name} must be a number in [0, {high}], got {value!r}")
    if not math.isfinite(value):
        raise SpecError(f"options.{name} must be finite, got {value!r}")
    return float(value)


def choice(options: Mapping[str, Any], name: str, allowed: Sequence[str], default: str) -> str:
    value = options.get(name, default)
    if value not in allowed:
        raise SpecError(f"options.{name} must be one of {', '.join(allowed)}, got {value!r}")
    return str(value)
