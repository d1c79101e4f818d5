"""The three totals: how the parts of a reward add up in GLM-V, Vero and SAIL-RL. Pure arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from glmv.rewards import options as opt
from glmv.rewards.types import SpecError

OPTIONS = frozenset({
    "style_penalty", "alpha", "max_len", "buffer", "lambda", "label", "direct_accuracy", "checks",
})  # fmt: skip

VERO_ALPHA, VERO_BUFFER, VERO_LAMBDA = 0.2, 2048, 1.0
SAIL_FORMAT_WEIGHT = 0.1
SAIL_NEEDS_THINKING_BELOW = 0.5
GLM_STYLE_PENALTY = 0.5


@dataclass(frozen=True, slots=True)
class Totals:
    """The options of the totals. `max_length` 0: no penalty for length; `label` "": none was given."""

    style_penalty: float
    alpha: float
    max_length: int
    buffer: int
    factor: float
    label: str
    checks: tuple[float, ...] | None


def totals_of(options: Mapping[str, Any]) -> Totals:
    """Read and check the options of the totals. Raises SpecError.

    GLM-V: `style_penalty`. Vero: `alpha`, and `max_len`, `buffer`, `lambda` (lengths in tokens) for overlong.
    SAIL-RL: `label` ("think" or "direct") or `direct_accuracy`; `checks`, the three bits, if they are known.
    """
    checks = options.get("checks")
    bits = isinstance(checks, list) and len(checks) == 3 and all(c in (0, 1) for c in checks)
    if checks is not None and not bits:
        raise SpecError(f"options.checks must be three bits, got {checks!r}")
    label = opt.choice(options, "label", ("", "think", "direct"), "")
    if not label and "direct_accuracy" in options:
        label = sail_label(opt.number(options, "direct_accuracy", 0.0, high=1.0))
    max_length, buffer = opt.number(options, "max_len", 0), opt.number(options, "buffer", VERO_BUFFER)
    if max_length and not 0 < buffer <= max_length:
        raise SpecError(f"options.buffer must be in (0, max_len = {max_length:g}], got {buffer:g}")
    return Totals(
        style_penalty=opt.number(options, "style_penalty", GLM_STYLE_PENALTY),
        alpha=opt.number(options, "alpha", VERO_ALPHA, high=1.0),
        max_length=int(max_length),
        buffer=int(buffer),
        factor=opt.number(options, "lambda", VERO_LAMBDA),
        label=label,
        checks=tuple(map(float, checks)) if checks is not None else None,
    )


def glm_total(accuracy: float, style: float, style_penalty: float = GLM_STYLE_PENALTY) -> float:
    """The verdict of the verifier, 0 without the right format, less the penalty for bad style.

    The size of the penalty is our choice; the source gives none.
    """
    return accuracy - style_penalty * (1.0 - style)


def overlong(length: int, max_length: int, buffer: int = VERO_BUFFER, factor: float = VERO_LAMBDA) -> float:
    """Vero's penalty, at most 0: it grows linearly over the last `buffer` tokens before `max_length`."""
    if buffer <= 0 or max_length < buffer or length < 0:
        raise ValueError(
            f"overlong: need 0 < buffer <= max_length and length >= 0, got {buffer}, {max_length}, {length}"
        )
    return min(-(length - (max_length - buffer)) / buffer * factor, 0.0)


def vero_total(accuracy: float, form: float, penalty: float = 0.0, alpha: float = VERO_ALPHA) -> float:
    """(1 - alpha) R_acc + alpha R_fmt + R_overlong; a format of 0 forces the accuracy to 0."""
    return (1.0 - alpha) * (accuracy if form > 0 else 0.0) + alpha * form + penalty


def sail_total(decision: float, thinking: float, answer: float, form: float) -> float:
    """0.9 R_judge R_think R_answer + 0.1 R_format."""
    return (1.0 - SAIL_FORMAT_WEIGHT) * decision * thinking * answer + SAIL_FORMAT_WEIGHT * form


def sail_thinking(decision: str, thinking: str, checks: Sequence[float]) -> float:
    """R_think: the mean of the three binary checks; for a direct answer 1 if the think part is empty."""
    if decision == "direct":
        return float(not thinking.strip())
    return sum(checks) / len(checks)


def sail_label(direct_accuracy: float) -> str:
    """The self-supervised label: think if direct answers are right less than half the time."""
    return "think" if direct_accuracy < SAIL_NEEDS_THINKING_BELOW else "direct"
