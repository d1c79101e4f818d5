"""A short clip at two frames a second: when does the red shape appear (video)."""

import numpy as np

from glmv.data.tasks import draw
from glmv.data.tasks.draw import CELL, FRAME, OTHERS, RED, SHAPES, Color, Image
from glmv.data.tasks.layout import cells, jitter
from glmv.data.tasks.task import Drawing, Level

SECONDS, OTHER_SHAPES = (4, 4, 6, 8), (0, 1, 1, 2)
WHEN_LEVELS = (
    Level("4 seconds, nothing else", 1 / 4),
    Level("4 seconds, another shape in each", 1 / 4, 1 / 4),
    Level("6 seconds, another shape in each", 1 / 6, 1 / 6),
    Level("8 seconds, small and moving, 2 others in each", 1 / 8, 1 / 8),
)


def when(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """The second in which the red shape is seen: the number that the prompt has behind those frames."""
    seconds, others = SECONDS[difficulty], OTHER_SHAPES[difficulty]
    answer = int(rng.integers(seconds))
    frames: list[Image] = []
    for second in range(seconds):
        colors = [RED] * (second == answer) + [OTHERS[i] for i in rng.permutation(len(OTHERS))[:others]]
        frames += _second(colors, difficulty == 3, rng)
    return Drawing("when red", f"at {answer}", str(answer), str(answer), frames=tuple(frames))


def _second(colors: list[Color], moving: bool, rng: np.random.Generator) -> list[Image]:
    """Two frames with one shape of each colour, each in a cell of its own."""
    frames = [draw.canvas(FRAME), draw.canvas(FRAME)]
    for color, at in zip(colors, cells(rng, len(colors), columns=2), strict=True):
        size = int(rng.integers(10, 15) if moving else rng.integers(16, 25))
        name, margin = SHAPES[int(rng.integers(len(SHAPES)))], (CELL - size) // 2
        for frame in frames:
            x, y = (v * CELL + margin + jitter(rng, 4 if moving else 0) for v in at)
            draw.put_shape(frame, name, x, y, size, color)
    return frames
