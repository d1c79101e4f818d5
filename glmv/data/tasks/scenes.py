"""Drawn scenes and photographs: count, photo, color (vqa), box (grounding), tap (click).

Every question names red, the flower or the largest: a fixed target, which a small model can learn to pick
out. (A target that the question names anew each time, it does not learn in the steps of the demo.)
"""

import numpy as np

from glmv.data.tasks import draw, sources
from glmv.data.tasks.draw import CELL, COLORS, OTHERS, RED, SHAPES, Color, Image
from glmv.data.tasks.layout import Cell, cells, jitter, number, per_mille, to_tens
from glmv.data.tasks.task import Drawing, Level

COUNT_LEVELS = (
    Level("1 to 3 red shapes", 1 / 3),
    Level("1 to 4 red, 1 or 2 others", 1 / 4),
    Level("1 to 5 red, 1 to 4 others, off the grid", 1 / 5),
)
PHOTO_LEVELS = (
    Level("1 to 3 pieces of the flower", 1 / 3),
    Level("1 to 4 of the flower, 1 or 2 of the temple", 1 / 4),
    Level("1 to 5 of the flower, 1 to 4 of the temple, in grey", 1 / 5),
)
COLOR_LEVELS = (
    Level("1 object", 1 / 6),
    Level("2 objects", 1 / 6, 1 / 2),
    Level("3 objects, off the grid", 1 / 6, 1 / 3),
)
BOX_LEVELS = (
    Level("1 object", 0.09),
    Level("2 objects", 0.09, 1 / 2),
    Level("3 objects", 0.09, 1 / 3),
    Level("3 objects and 2 photographs", 0.09, 1 / 3),
)
TAP_LEVELS = (
    Level("1 button", 0.11),
    Level("2 buttons and text", 0.11, 1 / 2),
    Level("3 buttons and text", 0.11, 1 / 3),
    Level("5 smaller buttons and text", 0.11, 1 / 5),
)
TAP_BUTTONS = (1, 2, 3, 5)


def count(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """Count the red shapes. The thought lists their cells."""
    many, others = _numbers(difficulty, rng)
    image, where = draw.canvas(), cells(rng, many + others)
    for i, at in enumerate(where):
        color = RED if i < many else _any_color(rng)
        _put_near_middle(image, at, _any_shape(rng), int(rng.integers(16, 24)), color, difficulty, rng)
    return Drawing("count red", _listing(where[:many]), str(many), str(many), image=image)


def photo(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """Count the pieces of a photograph of a flower, among pieces of one of a temple."""
    many, others = _numbers(difficulty, rng)
    image, where = draw.canvas(), cells(rng, many + others)
    used = {
        _put_photo(image, at, "flower" if i < many else "temple", split, rng) for i, at in enumerate(where)
    }
    if difficulty == 2:
        image[:] = image.mean(2, keepdims=True)
    return Drawing(
        "count flower photo",
        _listing(where[:many]),
        str(many),
        str(many),
        image=image,
        sources=tuple(sorted(used)),
    )


def color(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """The colour of the largest object; every object has another colour."""
    image, where = draw.canvas(), cells(rng, difficulty + 1)
    names = [list(COLORS)[i] for i in rng.permutation(len(COLORS))]
    for i, at in enumerate(where):
        size = int(rng.integers(22, 27) if i == 0 else rng.integers(10, 15))
        _put_near_middle(image, at, _any_shape(rng), size, COLORS[names[i]], (0, 0, 2)[difficulty], rng)
    return Drawing("color of largest", f"at {number(where[0])}", names[0], names[0], image=image)


def box(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """The box of the red shape, which stands anywhere in its cell."""
    objects, photos = min(difficulty + 1, 3), 2 if difficulty == 3 else 0
    image, where = draw.canvas(), cells(rng, objects + photos)
    x, y, size = _put_anywhere(image, where[0], RED, rng)
    for at in where[1:objects]:
        _put_anywhere(image, at, _any_color(rng), rng)
    names = [("flower", "temple")[i] for i in rng.integers(0, 2, photos)]
    used = {_put_photo(image, at, name, split, rng) for at, name in zip(where[objects:], names, strict=True)}
    truth = [per_mille(v) for v in (x, y, x + size, y + size)]
    return Drawing(
        "box red",
        f"at {number(where[0])}",
        f"[[{', '.join(str(to_tens(v)) for v in truth)}]]",
        [truth],
        image=image,
        sources=tuple(sorted(used)),
    )


def tap(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """A point on the red button of a drawn window. From level 1 on, text stands in two of the other cells."""
    image, where = draw.canvas(), cells(rng, 9)
    draw.put_window(image)
    for column, row in where[-2:] if difficulty else []:
        draw.put_text_lines(image, column * CELL, row * CELL)
    colors = [RED, *(OTHERS[i] for i in rng.permutation(len(OTHERS)))]
    boxes = [
        _put_button(image, at, color, 4 if difficulty == 3 else 0, rng)
        for at, color in zip(where[: TAP_BUTTONS[difficulty]], colors, strict=False)
    ]
    truth = [per_mille(v) for v in boxes[0]]
    x, y = (to_tens((truth[i] + truth[i + 2]) // 2) for i in (0, 1))
    return Drawing("click red", f"at {number(where[0])}", f"[{x}, {y}]", truth, image=image)


def _numbers(difficulty: int, rng: np.random.Generator) -> tuple[int, int]:
    """How many to count, and how many other objects."""
    many = int(rng.integers(1, 4 + difficulty))
    return many, 0 if difficulty == 0 else int(rng.integers(1, (3, 5)[difficulty - 1]))


def _listing(where: list[Cell]) -> str:
    return "at " + ", ".join(str(n) for n in sorted(map(number, where)))


def _any_shape(rng: np.random.Generator) -> str:
    return SHAPES[int(rng.integers(len(SHAPES)))]


def _any_color(rng: np.random.Generator) -> Color:
    return OTHERS[int(rng.integers(len(OTHERS)))]


def _put_near_middle(
    image: Image, at: Cell, name: str, size: int, color: Color, off_grid: int, rng: np.random.Generator
) -> None:
    margin = (CELL - size) // 2
    x, y = (v * CELL + margin + jitter(rng, min(off_grid, margin)) for v in at)
    draw.put_shape(image, name, x, y, size, color)


def _put_anywhere(image: Image, at: Cell, color: Color, rng: np.random.Generator) -> tuple[int, int, int]:
    """A shape of 14 to 26 pixels inside a cell, one pixel of the border free -> x, y, size."""
    size = int(rng.integers(14, 27))
    x, y = (v * CELL + int(rng.integers(1, CELL - size)) for v in at)
    draw.put_shape(image, _any_shape(rng), x, y, size, color)
    return x, y, size


def _put_button(
    image: Image, at: Cell, color: Color, smaller: int, rng: np.random.Generator
) -> tuple[int, int, int, int]:
    """A labelled button near the middle of a cell -> x1, y1, x2, y2."""
    width, height = 21 + jitter(rng, 2) - smaller, 14 + jitter(rng, 2) - smaller
    x = at[0] * CELL + (CELL - width) // 2 + jitter(rng, 2)
    y = at[1] * CELL + (CELL - height) // 2 + 1 + jitter(rng, 3)
    draw.put_button(image, x, y, width, height, color, draw.LABELS[int(rng.integers(len(draw.LABELS)))])
    return x, y, x + width, y + height


def _put_photo(image: Image, at: Cell, name: str, split: str, rng: np.random.Generator) -> str:
    """A piece of a photograph that fills a cell but for its edge -> its source."""
    tile = sources.crop(sources.photo(name, split), rng, CELL - 2)
    draw.put_tile(image, tile, at[0] * CELL + 1, at[1] * CELL + 1)
    return f"photo:{name}:{split}"
