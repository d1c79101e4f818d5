"""Rewards of completions, and what the metrics say of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from glmv.data.process import Processor
from glmv.data.types import Completion, Prompt
from glmv.rewards import score


@dataclass(frozen=True)
class Scored:
    """A completion with its text and reward."""

    completion: Completion
    text: str
    reward: float
    reason: str
    format_ok: bool
    thinking: bool  # the thinking part is not blank


def score_group(prompt: Prompt, completions: Sequence[Completion], processor: Processor) -> list[Scored]:
    """Score all answers of one prompt; the end token is not part of the text."""
    return [_score(prompt, completion, processor) for completion in completions]


def _score(prompt: Prompt, completion: Completion, processor: Processor) -> Scored:
    tokens = completion.tokens.tolist()
    if tokens and tokens[-1] in processor.stop_ids:
        tokens = tokens[:-1]
    text = processor.tokenizer.decode(tokens)
    reward = score(text, prompt.sample, length=completion.tokens.numel())
    accuracy, form = reward.parts["accuracy"], reward.parts["format"]
    return Scored(
        completion=completion,
        text=text,
        reward=reward.total,
        reason=accuracy.reason if form.value == 1 else form.reason,
        format_ok=form.value == 1,
        thinking=bool(text.partition("</think>")[0].removeprefix("<think>").strip()),
    )
