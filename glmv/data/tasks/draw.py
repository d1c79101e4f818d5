"""Drawing on uint8 arrays: shapes, buttons, bars, tiles. Every mark has hard edges and a known extent.

A picture is 84 x 84 pixels, a grid of 3 x 3 cells of 28 pixels: one merged visual token of the tiny model a
cell. A clip's frame is 56 x 56, 2 x 2 cells. The background is white.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.uint8]  # [height, width, 3]
Mask = NDArray[np.bool_]  # [height, width]
Color = tuple[int, int, int]

CELL = 28
SIDE = 3 * CELL  # of a picture
FRAME = 2 * CELL  # of a clip's frame

RED: Color = (220, 30, 30)  # the colour that questions name
COLORS: dict[str, Color] = {
    "red": RED,
    "green": (30, 170, 50),
    "blue": (40, 60, 220),
    "yellow": (235, 215, 40),
    "purple": (150, 40, 190),
    "black": (20, 20, 20),
}
OTHERS: tuple[Color, ...] = tuple(color for color in COLORS.values() if color != RED)
SHAPES = ("circle", "square", "triangle", "cross")

# Five rows of three pixels a letter: enough for a button, and the same on every machine (no font file).
_GLYPHS = {
    "G": "111 100 101 101 111",
    "I": "111 010 010 010 111",
    "K": "101 101 110 101 101",
    "N": "101 111 111 111 101",
    "O": "111 101 101 101 111",
    "P": "111 101 111 100 100",
    "U": "101 101 101 101 111",
}
LABELS = ("OK", "GO", "UP", "NO", "IN", "ON")


def canvas(side: int = SIDE) -> Image:
    """A white picture [side, side, 3]."""
    return np.full((side, side, 3), 255, np.uint8)


@cache
def shape_mask(shape: str, size: int) -> Mask:
    """[size, size]: the pixels of a shape. It touches all four edges, so its bounding box is the square."""
    y, x = np.mgrid[:size, :size] + 0.5  # pixel centres
    half = size / 2
    if shape == "circle":
        return np.asarray((x - half) ** 2 + (y - half) ** 2 <= half**2)
    if shape == "triangle":
        return np.asarray(abs(x - half) <= y / 2 + 0.5)
    if shape == "cross":
        return np.asarray((abs(x - half) <= size / 6) | (abs(y - half) <= size / 6))
    return np.ones((size, size), bool)


def put_shape(image: Image, shape: str, x: int, y: int, size: int, color: Color) -> None:
    """Paint a shape whose bounding box has its top left pixel at (x, y)."""
    image[y : y + size, x : x + size][shape_mask(shape, size)] = color


def put_ink(image: Image, ink: NDArray[np.uint8], x: int, y: int) -> None:
    """Paint `ink` [h, w] (0 none, 255 black) so that it darkens what is there; (x, y) is pulled inside."""
    height, width = ink.shape
    x = min(max(x, 0), image.shape[1] - width)
    y = min(max(y, 0), image.shape[0] - height)
    region = image[y : y + height, x : x + width]
    np.minimum(region, 255 - ink[..., None], out=region)


def put_tile(image: Image, tile: Image, x: int, y: int) -> None:
    """Paste a picture with its top left pixel at (x, y)."""
    image[y : y + tile.shape[0], x : x + tile.shape[1]] = tile


def put_window(image: Image) -> None:
    """Paint a window around the picture: a frame and a title bar of 4 pixels with three knobs."""
    image[:4] = (225, 228, 235)
    image[1:3, 3:13] = np.where(np.arange(10)[:, None] % 4 < 2, 150, image[1:3, 3:13])
    image[-1], image[:, 0], image[:, -1] = 200, 200, 200


def put_text_lines(image: Image, x: int, y: int) -> None:
    """Paint two grey lines that stand for text in a cell whose top left pixel is (x, y)."""
    image[y + 9 : y + 11, x + 5 : x + 22] = 190
    image[y + 15 : y + 17, x + 5 : x + 17] = 190


def put_button(image: Image, x: int, y: int, width: int, height: int, color: Color, label: str) -> None:
    """Paint a button with a dark border and a label in its middle."""
    image[y : y + height, x : x + width] = (60, 60, 90)
    image[y + 1 : y + height - 1, x + 1 : x + width - 1] = color
    text = text_mask(label)
    top, left = y + (height - text.shape[0]) // 2, x + (width - text.shape[1]) // 2
    light = sum(color) > 400  # yellow takes black letters
    image[top : top + text.shape[0], left : left + text.shape[1]][text] = 0 if light else 255


def put_bars(
    image: Image, values: NDArray[np.float64], colors: tuple[Color, ...], first_column: int = 0
) -> None:
    """Paint a bar chart of values 0..100 with a grid line at every ten, the one at 50 darker.

    Up to three bars stand in columns of one cell, more in columns of half a cell.
    """
    for ten in range(10, 100, 10):
        image[SIDE - round(ten * SIDE / 100)] = 170 if ten == 50 else 225
    column = CELL if len(values) <= 3 else CELL // 2
    for i, (value, color) in enumerate(zip(values, colors, strict=True), first_column):
        left, right = round((i + 0.15) * column), round((i + 0.85) * column)
        image[SIDE - round(value * SIDE / 100) :, left:right] = color


@cache
def text_mask(text: str) -> Mask:
    """[5, 4 * len(text) - 1]: the pixels of a short text."""
    rows = [_GLYPHS[letter].split() for letter in text]
    lines = ["0".join(row) for row in zip(*rows, strict=True)]
    return np.array([[pixel == "1" for pixel in line] for line in lines])
