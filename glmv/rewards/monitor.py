"""Signs that a verifier is being hacked. Pure functions on what a run logs per step and domain.

One weak verifier can ruin every domain (arXiv 2507.01006), and the reward itself does not show it: it rises.
What shows it is a strict check on held-out data that does not rise with the reward, and answers that change
their look at once: their length, their markers, the reasons of their scores.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from glmv.rewards.extract import BEGIN, END, LATEX_BOX


@dataclass(frozen=True, slots=True)
class Record:
    """One domain at one step. Shares are of the answers of that step; NaN where nothing was measured."""

    step: int
    domain: str
    reward: float  # mean
    strict: float = math.nan  # accuracy of a strict check on held-out data, measured as often as one likes
    length: float = math.nan  # mean, in tokens or characters
    markers: float = math.nan  # mean number of box markers of an answer
    reasons: Mapping[str, float] = field(default_factory=dict)  # reason -> share


@dataclass(frozen=True, slots=True)
class Limits:
    """`window` steps are compared with as many before them."""

    window: int = 10
    rise: float = 0.1  # of the mean reward, that the strict check must follow
    follow: float = 0.25  # the share of a rise of the reward that the strict check must show
    gap: float = 0.25  # reward less strict accuracy
    growth: float = 0.1  # of that gap
    length_factor: float = 2.0
    markers: float = 0.5  # change of the mean number per answer
    reason_share: float = 0.3  # change of the share of one reason


def record(
    step: int,
    domain: str,
    rewards: Sequence[float],
    responses: Sequence[str],
    reasons: Sequence[str],
    strict: float = math.nan,
) -> Record:
    """The record of the answers of one step; masked rewards (NaN) are left out of the mean."""
    known = [reward for reward in rewards if not math.isnan(reward)]
    counts = Counter(reasons)
    marks = [text.count(BEGIN) + text.count(END) + text.count(LATEX_BOX) for text in responses]
    return Record(
        step=step,
        domain=domain,
        reward=_mean(known),
        strict=strict,
        length=_mean([float(len(text)) for text in responses]),
        markers=_mean([float(mark) for mark in marks]),
        reasons={reason: count / counts.total() for reason, count in counts.items()},
    )


def warnings(history: Sequence[Record], limits: Limits = Limits()) -> list[str]:
    """What looks wrong in the last steps of each domain, in sentences for a report; empty if nothing does."""
    return [
        f"{domain}, step {records[-1].step}: {sentence}"
        for domain, records in _by_domain(history).items()
        for sentence in _signs(records, limits)
    ]


def metrics(history: Sequence[Record], limits: Limits = Limits()) -> dict[str, float]:
    """For a metrics file: per domain the gap of reward and strict accuracy, and how many signs there are."""
    found: dict[str, float] = {}
    for domain, records in _by_domain(history).items():
        found[f"{domain}/reward_gap"] = _gap(records[-limits.window :])
        found[f"{domain}/verifier_warnings"] = float(len(_signs(records, limits)))
    return found


def _signs(records: Sequence[Record], limits: Limits) -> list[str]:
    now, before = records[-limits.window :], records[-2 * limits.window : -limits.window]
    if not before:
        return []
    signs = [
        _unfollowed(now, before, limits),
        _gap_sign(now, before, limits),
        _length_sign(now, before, limits),
    ]
    return [sign for sign in (*signs, *_look(now, before, limits)) if sign]


def _unfollowed(now: Sequence[Record], before: Sequence[Record], limits: Limits) -> str:
    rise = _average(now, "reward") - _average(before, "reward")
    strict = _average(now, "strict") - _average(before, "strict")
    if math.isnan(strict) or rise < limits.rise or strict >= limits.follow * rise:
        return ""
    return f"the reward rose by {rise:.2f} and the strict check by {strict:.2f}: the verifier may be hacked"


def _gap_sign(now: Sequence[Record], before: Sequence[Record], limits: Limits) -> str:
    gap, earlier = _gap(now), _gap(before)
    if not gap > limits.gap or not gap - earlier > limits.growth:
        return ""
    return f"the reward is {gap:.2f} above the strict check (it was {earlier:.2f})"


def _length_sign(now: Sequence[Record], before: Sequence[Record], limits: Limits) -> str:
    length, earlier = _average(now, "length"), _average(before, "length")
    if not earlier > 0 or 1 / limits.length_factor < length / earlier < limits.length_factor:
        return ""
    if math.isnan(length):
        return ""
    return f"the length went from {earlier:.0f} to {length:.0f}"


def _look(now: Sequence[Record], before: Sequence[Record], limits: Limits) -> list[str]:
    """Changes of the markers and of the reasons. A share of "ok" that rises is what training is for."""
    signs = []
    marks, earlier = _average(now, "markers"), _average(before, "markers")
    if abs(marks - earlier) > limits.markers:
        signs.append(f"the box markers of an answer went from {earlier:.1f} to {marks:.1f}")
    for reason in sorted({reason for item in (*now, *before) for reason in item.reasons} - {"ok"}):
        share, past = _share(now, reason), _share(before, reason)
        if share - past > limits.reason_share:
            signs.append(f"the share of {reason} went from {100 * past:.0f} % to {100 * share:.0f} %")
    return signs


def _by_domain(history: Sequence[Record]) -> dict[str, list[Record]]:
    domains: dict[str, list[Record]] = {}
    for item in sorted(history, key=lambda item: item.step):
        domains.setdefault(item.domain, []).append(item)
    return domains


def _gap(records: Sequence[Record]) -> float:
    return _average(records, "reward") - _average(records, "strict")


def _share(records: Sequence[Record], reason: str) -> float:
    return _mean([item.reasons.get(reason, 0.0) for item in records])


def _average(records: Sequence[Record], name: str) -> float:
    """Over the steps where it was measured."""
    values: list[float] = [getattr(item, name) for item in records]
    return _mean([value for value in values if not math.isnan(value)])


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else math.nan
