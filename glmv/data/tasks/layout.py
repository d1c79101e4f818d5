"""Where things stand: cells of the grid, jitter, and coordinates from 0 to 1000."""

import numpy as np

from glmv.data.tasks.draw import SIDE

Cell = tuple[int, int]  # column and row, from the top left


def cells(rng: np.random.Generator, count: int, columns: int = 3) -> list[Cell]:
    """`count` different cells of a grid of columns x columns, in random order."""
    picked = rng.permutation(columns * columns)[:count].tolist()
    return [(i % columns, i // columns) for i in picked]


def number(at: Cell) -> int:
    """The number of a picture's cell, 1 to 9, row by row."""
    return at[1] * 3 + at[0] + 1


def jitter(rng: np.random.Generator, most: int) -> int:
    """A whole number from -most to most."""
    return int(rng.integers(-most, most + 1)) if most else 0


def per_mille(pixels: float) -> int:
    """A pixel coordinate of a picture on the scale 0..1000."""
    return round(pixels * 1000 / SIDE)


def to_tens(value: int) -> int:
    """Rounded to a multiple of ten, halves up: below a pixel, and one digit less to guess in a coordinate."""
    return (value + 5) // 10 * 10
