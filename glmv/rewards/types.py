"""What the reward functions return, and the shape of a judge.

A score is never a silent zero: it always carries a reason code, which the trainer counts per domain.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Reason = Literal[
    "ok", "wrong", "partial", "no_box", "multi_box", "malformed", "empty", "bad_json", "bad_geometry",
    "too_many_boxes", "too_long", "too_deep", "unsupported", "timeout", "format", "style", "judge_ok",
    "judge_wrong", "judge_unavailable", "judge_unparsed", "judge_rejected", "unknown_kind",
]  # fmt: skip

# Called with one rendered prompt; returns the reply, or the replies of several judges (majority decides).
# Raises JudgeError, OSError or TimeoutError when no judge can be reached: such a score is masked.
Judge = Callable[[str], str | Sequence[str]]


class JudgeError(Exception):
    """A judge that cannot be reached, or that gave up."""


class SpecError(ValueError):
    """The reference or the options of a sample are unusable; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Extraction:
    """The parts of a response. `reason` is "ok", or why no answer could be extracted."""

    thinking: str
    answer: str | None  # what stands between the box markers, stripped; None unless reason is "ok"
    reason: Reason
    body: str = ""  # everything after the thinking part, without answer tags
    decision: str = ""  # "think" or "direct" in the layout of SAIL-RL


@dataclass(frozen=True, slots=True)
class Score:
    """The verdict of one verifier.

    `value` is in [0, 1]; None means that there is no verdict (a judge could not be reached) and the
    completion must be masked from the update.
    """

    value: float | None
    reason: Reason
    extracted: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


def graded(value: float, extracted: str, details: Mapping[str, Any], failure: Reason = "wrong") -> Score:
    """A score whose reason follows from its value: 1 is ok, 0 is `failure`, the rest is partial."""
    reason: Reason = "ok" if value == 1 else "partial" if value else failure
    return Score(value, reason, extracted, details)


@dataclass(frozen=True, slots=True)
class Reward:
    """A total with the scores it is made of; NaN, never 0, if one of them has no verdict."""

    total: float
    parts: Mapping[str, Score]

    @property
    def masked(self) -> bool:
        """True if this completion must not enter the update."""
        return math.isnan(self.total)

    @property
    def reason(self) -> Reason:
        """The reason of the part that decided: the first that is not a plain "ok"."""
        for part in self.parts.values():
            if part.reason != "ok":
                return part.reason
        return "ok"
