"""What a RewardSystem sends to its workers, and what a worker does with it."""

import json
from dataclasses import dataclass
from typing import Any

from glmv.data.types import Sample
from glmv.rewards.extract import BEGIN, extract
from glmv.rewards.judge import with_question
from glmv.rewards.pool import TaskError, TaskFailed
from glmv.rewards.score import score
from glmv.rewards.system_config import Rule
from glmv.rewards.types import JudgeError, Reason, Reward, Score, SpecError
from glmv.rewards.verify import VERIFIERS
from glmv.rewards.vero import route

Replies = list[str] | JudgeError


@dataclass(frozen=True, slots=True)
class Item:
    """One response to score. `reference` as the kind understands it."""

    response: str
    reference: Any
    rule: Rule
    prompt: str = ""
    length: int | None = None  # of the response, in tokens: Vero's overlong penalty needs it

    @property
    def open_ended(self) -> bool:
        return self.rule.options.get("verifiable", True) is False


@dataclass(frozen=True, slots=True)
class Ask:
    """A verifier stopped at a question to the judge."""

    prompt: str


def reward_of(item: Item, judge: str | None, replies: tuple[Replies, ...]) -> Reward | Ask:
    """Runs in a worker: the reward, or the question that must be answered first. `judge` is its name."""
    spec = {
        "kind": item.rule.kind,
        "ground_truth": item.reference,
        "options": item.rule.options,
        "scheme": item.rule.scheme,
    }
    chat = ({"role": "user", "content": item.prompt},) if item.prompt else ()
    sample = Sample("", "", chat, reward_model=spec)
    try:
        return score(
            item.response, sample, None if judge is None else _Replay(judge, replies), length=item.length
        )
    except _Unanswered as unanswered:
        return Ask(with_question(unanswered.prompt, item.prompt))


class _Replay:
    """A judge that gives the replies it was made with, one after the other, then asks for more."""

    def __init__(self, name: str, replies: tuple[Replies, ...]) -> None:
        self.name = name
        self._remaining = iter(replies)

    def __call__(self, prompt: str) -> list[str]:
        reply = next(self._remaining, None)
        if reply is None:
            raise _Unanswered(prompt)
        if isinstance(reply, JudgeError):
            raise reply
        return reply


class _Unanswered(Exception):
    """Not a JudgeError: it passes through the verifier, whatever that does about judges that fail."""

    def __init__(self, prompt: str) -> None:
        super().__init__()
        self.prompt = prompt


def reference_of(kind: str, reference: Any) -> Any:
    """A reference in a box loses the box; JSON text is read if the kind has no use for text."""
    if not isinstance(reference, str):
        return reference
    if BEGIN in reference:
        found = extract("glm", reference)
        reference = reference if found.answer is None else found.answer
    try:
        VERIFIERS[route(kind).kind].check_reference(reference)
    except SpecError:
        try:
            return json.loads(reference)
        except ValueError:
            pass  # the verifier will say that it is unusable, for every answer
    return reference


def broken(error: TaskError) -> Reward:
    """A limit that was broken is "timeout"; a verifier that raised is "unsupported", with its message."""
    reason: Reason = "unsupported" if isinstance(error, TaskFailed) else "timeout"
    verdict = Score(0.0, reason, None, {"error": str(error)})
    return Reward(0.0, {"format": verdict, "accuracy": verdict})
