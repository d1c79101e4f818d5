"""Instruction following: the share of the constraints that a response meets."""

from collections.abc import Mapping
from typing import Any

from glmv.rewards import judge as judging
from glmv.rewards.constraints import CHECKS
from glmv.rewards.types import Judge, Score, SpecError, graded

# The judge options are for those types that average in a judge.
OPTIONS = frozenset({"constraints"}) | judging.OPTIONS
MAX_CHARS = 131_072
MAX_CONSTRAINTS = 64


def verify_ifollow(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """`constraints` is a list of `{"id": ..., "kwargs": {...}}` with the ids of IFEval; an id that is not
    known counts as not met. The reference is not used. The answer is the whole text for the reader.
    """
    constraints = _constraints(options)
    met = [_met(answer, identity, kwargs) for identity, kwargs in constraints]
    if not answer.strip():
        return Score(0.0, "empty", answer)
    if len(answer) > MAX_CHARS:
        return Score(0.0, "too_long", answer)
    failed = [identity for (identity, _), ok in zip(constraints, met, strict=True) if not ok]
    return graded(sum(met) / len(met), answer, {"failed": failed})


def check_reference(reference: object) -> None:
    """Any reference will do: the constraints are options."""


def _met(text: str, identity: str, kwargs: Mapping[str, Any]) -> bool:
    check = CHECKS.get(identity)
    return check is not None and check(text[:MAX_CHARS], kwargs)


def _constraints(options: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    given = options.get("constraints")
    if not isinstance(given, list) or not 0 < len(given) <= MAX_CONSTRAINTS:
        raise SpecError(
            f"options.constraints must be a list of 1 to {MAX_CONSTRAINTS} objects, got {given!r}"
        )
    found = []
    for entry in given:
        kwargs = (entry.get("kwargs") or {}) if isinstance(entry, dict) else None
        if kwargs is None or not isinstance(kwargs, dict) or not isinstance(entry.get("id"), str):
            raise SpecError(f'a constraint must be {{"id": text, "kwargs": object}}, got {entry!r}')
        # Published sets carry every argument of every constraint, null where it does not apply.
        found.append((entry["id"], {key: value for key, value in kwargs.items() if value is not None}))
    return found
