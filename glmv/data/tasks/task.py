"""What a built-in task is, and one drawn item of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glmv.data.tasks.draw import Image

FPS = 2.0  # of the clips: the two frames of a temporal patch show one second


@dataclass(frozen=True)
class Level:
    """One step of a task's difficulty, with the rewards that need no skill.

    `constant` is the expected reward of the best answer that ignores the picture, `any_object` that of a
    right answer about one object at random (0 where there is only one): what a model earns that reads well
    but does not select.
    """

    text: str
    constant: float
    any_object: float = 0.0

    @property
    def chance(self) -> float:
        """The better of the two: a result near it shows no skill at this level."""
        return max(self.constant, self.any_object)


@dataclass(frozen=True)
class Drawing:
    """What a task's maker draws: a picture or a clip, a question about it and the answer."""

    query: str
    trace: str  # what the supervised response thinks: short, and of words that the tiny tokenizer knows
    answer: str  # what it puts between the box markers
    truth: Any  # what the verifier compares with (JSON)
    image: Image | None = None  # [84, 84, 3]
    frames: tuple[Image, ...] = ()  # each [56, 56, 3]
    sources: tuple[str, ...] = ()  # the real inputs that it shows; () for a drawn scene


# make(difficulty, split, rng): difficulty counts from 0, split is "train" or "heldout".
Maker = Callable[[int, str, np.random.Generator], Drawing]


@dataclass(frozen=True)
class Task:
    """A built-in task: a domain, the verifier that scores it, and levels from very easy to hard."""

    domain: str
    kind: str  # verifier
    levels: tuple[Level, ...]
    make: Maker
    source: str  # what it is made from, for people
    options: Mapping[str, Any] = field(default_factory=dict)  # of the verifier


@dataclass(frozen=True)
class Item:
    """A drawing with its place in the collection; `sources` are never empty and belong to one split."""

    task: str
    difficulty: int
    split: str
    drawing: Drawing
    sources: tuple[str, ...]

    @property
    def content(self) -> str:
        """The user's message."""
        return ("<video>" if self.drawing.frames else "<image>") + self.drawing.query

    @property
    def response(self) -> str:
        """The target of supervised training, in GLM-4.1V's format, without the end token."""
        think, box = self.drawing.trace, self.drawing.answer
        return f"<think>{think}</think><answer><|begin_of_box|>{box}<|end_of_box|></answer>"
