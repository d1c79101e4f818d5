"""Handwritten digits: read a number (ocr), add two (math)."""

import numpy as np

from glmv.data.tasks import draw, sources
from glmv.data.tasks.draw import CELL, Image
from glmv.data.tasks.layout import Cell, cells, jitter, number
from glmv.data.tasks.task import Drawing, Level

# Edit distance pays a little for a long constant such as 0123456.
READ_LEVELS = (
    Level("1 digit", 0.10),
    Level("2 digits", 0.15),
    Level("3 digits", 0.18),
    Level("3 digits, off the grid", 0.18),
)
SUM_LEVELS = (
    Level("digits 0 to 4", 0.20),
    Level("digits 0 to 9", 0.10),
    Level("digits 0 to 9, off the grid", 0.10),
)


def read(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """Read 1 to 3 digits, row by row and from the left. The thought names each digit's cell."""
    digits = rng.integers(0, 10, min(difficulty + 1, 3)).tolist()
    image, where, used = _write(digits, split, 3 if difficulty == 3 else 0, rng)
    trace = ", ".join(f"{number(at)} = {digit}" for at, digit in zip(where, digits, strict=True))
    answer = "".join(map(str, digits))
    return Drawing("read", trace, answer, answer, image=image, sources=used)


def sum_(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """Add two digits."""
    x, y = rng.integers(0, 5 if difficulty == 0 else 10, 2).tolist()
    image, _, used = _write([x, y], split, 3 if difficulty == 2 else 0, rng)
    return Drawing("sum", f"{x} + {y}", str(x + y), str(x + y), image=image, sources=used)


def _write(
    digits: list[int], split: str, off_grid: int, rng: np.random.Generator
) -> tuple[Image, list[Cell], tuple[str, ...]]:
    """Digits in reading order in random cells -> picture, cells, sources."""
    bank = sources.digits(split)
    image, where, used = draw.canvas(), sorted(cells(rng, len(digits)), key=number), []
    for digit, (x, y) in zip(digits, where, strict=True):
        row = int(rng.choice(bank.index[digit]))
        left, top = (v * CELL + (CELL - sources.DIGIT) // 2 + jitter(rng, off_grid) for v in (x, y))
        draw.put_ink(image, bank.ink[row], left, top)
        used.append(f"digits:{bank.offset + row}")
    return image, where, tuple(used)
