"""Items of the built-in tasks, and what the tests read from their pixels."""

import numpy as np
from numpy.typing import NDArray

from glmv.data.tasks import TASKS, Item, make_item
from glmv.data.tasks.draw import CELL, RED, SIDE

CELLS = [(task, difficulty) for task in TASKS for difficulty in range(len(TASKS[task].levels))]


def items(task: str, difficulty: int, n: int = 30, split: str = "train") -> list[Item]:
    return [make_item(task, difficulty, split, np.random.default_rng([17, i])) for i in range(n)]


def levels(task: str) -> range:
    return range(len(TASKS[task].levels))


def picture(item: Item) -> NDArray[np.uint8]:
    assert item.drawing.image is not None
    return item.drawing.image


def red(image: NDArray[np.uint8]) -> NDArray[np.bool_]:
    return np.asarray((image == RED).all(-1))


def extent(mask: NDArray[np.bool_]) -> list[int]:
    """x1, y1, x2, y2 of the pixels in a mask, the far edges exclusive."""
    y, x = np.nonzero(mask)
    return [int(x.min()), int(y.min()), int(x.max()) + 1, int(y.max()) + 1]


def per_mille(box: list[int]) -> list[int]:
    return [round(v / SIDE * 1000) for v in box]


def tile(image: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    """Cell 1..9 of a picture."""
    y, x = divmod(number - 1, 3)
    return image[y * CELL : (y + 1) * CELL, x * CELL : (x + 1) * CELL]


def bar_heights(image: NDArray[np.uint8], count: int) -> list[float]:
    """Values 0..100 of a chart's bars, measured in the middle of each column that has one."""
    width = CELL if count <= 3 else CELL // 2
    columns = [
        image[:, width // 2 + x] for x in range(0, SIDE, width) if image[-1, width // 2 + x].min() < 225
    ]
    assert len(columns) == count
    return [float((c == c[-1]).all(-1).sum()) * 100 / SIDE for c in columns]
