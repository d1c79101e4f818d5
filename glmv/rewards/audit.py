"""Attacks on every verifier, and how many are accepted: a rate above 0 is a hole that a policy will find."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from glmv.data.types import Sample
from glmv.rewards.attacks import TARGETS, Target, answers, proper, responses
from glmv.rewards.case_report import table
from glmv.rewards.cases import MAX_SECONDS
from glmv.rewards.judge import blocks
from glmv.rewards.pool import Pool, TaskError
from glmv.rewards.score import score
from glmv.rewards.verify import KINDS, verify

# More than half of the reward for an answer that is never right.
ACCEPT_ABOVE = 0.5
RIGHT = "right answer"


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack. `value` is the most that it earned, as an answer or as a whole response."""

    kind: str
    attack: str
    text: str
    value: float
    seconds: float

    @property
    def accepted(self) -> bool:
        return self.value > ACCEPT_ABOVE


def parrot(prompt: str) -> str:
    """A judge that quotes the whole candidate before its verdict, which is yes only for the reference itself.

    A candidate that is read as part of the reply, or that changed the prompt, would win here.
    """
    found = blocks(prompt)
    if found is None:
        return "0"
    same = found.candidate.strip() == found.reference.strip()
    verdict = (10 if found.scale == "vero_1_10" else 1) if same else (1 if found.scale == "vero_1_10" else 0)
    return f'The candidate reads: {found.candidate}\n{{"REASONING": "compared", "SCORE": {verdict}}}'


def attack(target: Target, name: str, text: str, whole: bool) -> Finding:
    """Runs in a worker."""
    spec = {"kind": target.kind, "ground_truth": target.reference, "options": target.options}
    sample = Sample("", "", ({"role": "user", "content": target.question},), reward_model=spec)
    start = time.perf_counter()
    # The open kinds read the whole answer part, in which a box is a mistake.
    total = score(text if whole else proper(text), sample, parrot).total
    values = [0.0 if math.isnan(total) else total]
    if not whole:
        values.append(verify(target.kind, text, target.reference, target.options, parrot).value or 0.0)
    return Finding(target.kind, name, text, max(values), time.perf_counter() - start)


def audit(kinds: Sequence[str] = KINDS) -> list[Finding]:
    """Every attack on every target, in a worker with limits; one that breaks a limit counts as accepted.

    A finding named "right answer" is no attack: it shows that the target can be hit at all.
    """
    targets = [target for target in TARGETS if target.kind in kinds]
    tasks: list[tuple[Target, str, str, bool]] = []
    for target in targets:
        tasks.append((target, RIGHT, target.right, False))
        tasks += [(target, name, text, False) for name, text in answers(target)]
        tasks += [(target, name, text, True) for name, text in responses(target)]
    with Pool(1, seconds=MAX_SECONDS) as pool:
        results = pool.map(attack, tasks)
    return [
        Finding(task[0].kind, f"{task[1]} ({result})", task[2], 1.0, MAX_SECONDS)
        if isinstance(result, TaskError)
        else result
        for task, result in zip(tasks, results, strict=True)
    ]


def accepted(findings: Sequence[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.accepted and finding.attack != RIGHT]


def holds(findings: Sequence[Finding]) -> bool:
    """No attack is accepted and every right answer is."""
    return not accepted(findings) and all(f.accepted for f in findings if f.attack == RIGHT)


def summary(findings: Sequence[Finding]) -> dict[str, Any]:
    attacks = [finding for finding in findings if finding.attack != RIGHT]
    right = [finding for finding in findings if finding.attack == RIGHT]
    return {
        "attacks": len(attacks),
        "false_accepts": len(accepted(attacks)),
        "false_accept_rate": len(accepted(attacks)) / max(1, len(attacks)),
        "highest_value": max((finding.value for finding in attacks), default=0.0),
        "slowest_ms": 1e3 * max((finding.seconds for finding in findings), default=0.0),
        "right_answers": f"{sum(finding.accepted for finding in right)}/{len(right)}",
    }


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    kinds = dict.fromkeys(finding.kind for finding in findings)
    return {
        "total": summary(findings),
        "kinds": {kind: summary([f for f in findings if f.kind == kind]) for kind in kinds},
        "accepted": [
            {"kind": f.kind, "attack": f.attack, "text": f.text[:200], "value": f.value}
            for f in accepted(findings)
        ],
    }


def as_text(findings: Sequence[Finding]) -> str:
    figures = as_json(findings)
    header = ("kind", "attacks", "false accepts", "rate", "highest value", "slowest ms", "right answers")
    rows = [_line(kind, some) for kind, some in figures["kinds"].items()]
    parts = [table([header, *rows, _line("all", figures["total"])])]
    holes = accepted(findings)
    if holes:
        shown = [(f.kind, f.attack, f"{f.value:g}", ascii(f.text)[:60]) for f in holes]
        parts.append("accepted:\n" + table(shown))
    return "\n\n".join(parts)


def _line(kind: str, figures: dict[str, Any]) -> tuple[str, ...]:
    return (
        kind,
        str(figures["attacks"]),
        str(figures["false_accepts"]),
        f"{100 * figures['false_accept_rate']:.2f} %",
        f"{figures['highest_value']:.2f}",
        f"{figures['slowest_ms']:.1f}",
        figures["right_answers"],
    )
