"""The real inputs of the built-in tasks, out of packages that ship them: nothing is downloaded.

- handwritten digits: `sklearn.datasets.load_digits` (UCI optical recognition, 1,797 images of 8 x 8)
- photographs: scikit-learn's `china.jpg` and `flower.jpg`
- public series: statsmodels' sunspots, Nile flow, CO2, El Nino sea temperature and US macro data

Each is cut into "train" and "heldout" by item: no digit image, stretch of a series or piece of a photograph
is in both.
"""

import importlib
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glmv.data.tasks.draw import CELL, Image

SPLITS = ("train", "heldout")
# The tail, not a random part: the set seems to be in the order of its writers (3 nearest neighbours read
# 97.0 % of it, and 98.2 to 99.0 % of random parts of its size), so held-out digits are mostly by new hands.
NUM_TRAIN_DIGITS = 1400
DIGIT = CELL - 4
TRAIN_SHARE_OF_SERIES = 0.7
# The part of each photograph that shows its subject: x0, cut, x1 (left of the cut for training), y0, y1.
PHOTOS = {"temple": ("china.jpg", 70, 230, 375, 40, 390), "flower": ("flower.jpg", 170, 320, 455, 85, 350)}


@dataclass(frozen=True)
class Digits:
    """One split's digit images."""

    ink: NDArray[np.uint8]  # [n, 24, 24]: 0 paper, 255 ink
    index: tuple[NDArray[np.int64], ...]  # by class 0..9: rows of `ink`
    offset: int  # row 0 is image `offset` of the whole set


@dataclass(frozen=True)
class Series:
    """One split's stretch of a series."""

    name: str
    values: NDArray[np.float64]  # [n]
    offset: int  # values[0] is entry `offset` of the whole series


def need(module: str, package: str) -> ModuleType:
    """Import a module of a package that only the built-in tasks use.

    Raises ModuleNotFoundError with the line that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"the built-in tasks need {package}, which is not installed: pip install 'glmv[demo]'"
        raise ModuleNotFoundError(message, name=error.name) from error


@cache
def digits(split: str) -> Digits:
    """The handwritten digits of a split, enlarged from 8 x 8 to fill most of a cell."""
    data = need("sklearn.datasets", "scikit-learn").load_digits()
    first, last = (0, NUM_TRAIN_DIGITS) if split == "train" else (NUM_TRAIN_DIGITS, len(data.target))
    target = data.target[first:last]
    ink = np.stack([_enlarge(image) for image in data.images[first:last]])
    return Digits(ink, tuple(np.flatnonzero(target == c) for c in range(10)), first)


@cache
def series(split: str) -> tuple[Series, ...]:
    """All series of a split: the first 70 % of each for training, the rest held out."""
    sets = need("statsmodels.datasets", "statsmodels")
    macro = sets.macrodata.load_pandas().data
    whole = {
        "sunspots": sets.sunspots.load_pandas().data["SUNACTIVITY"],
        "nile": sets.nile.load_pandas().data["volume"],
        "co2": sets.co2.load_pandas().data["co2"].dropna()[::4],  # weekly, thinned to about monthly
        "elnino": sets.elnino.load_pandas().data.set_index("YEAR").stack(),
        "unemployment": macro["unemp"],
        "inflation": macro["infl"],
        "interest": macro["tbilrate"],
    }
    return tuple(_part(name, values, split) for name, values in whole.items())


@cache
def photo(name: str, split: str) -> Image:
    """The part of a photograph that a split may show, [height, width, 3]: left or right of a cut."""
    file, x0, cut, x1, y0, y1 = PHOTOS[name]
    whole = need("sklearn.datasets", "scikit-learn").load_sample_image(file)
    left, right = (x0, cut) if split == "train" else (cut, x1)
    return np.ascontiguousarray(whole[y0:y1, left:right])


def crop(part: Image, rng: np.random.Generator, size: int) -> Image:
    """A random square of 70 to 120 pixels of a photograph, scaled down to [size, size, 3]."""
    side = int(rng.integers(70, 121))
    y, x = (int(rng.integers(0, n - side + 1)) for n in part.shape[:2])
    return _resize(part[y : y + side, x : x + side], size, "BOX")


def _enlarge(image: NDArray[np.float64]) -> NDArray[np.uint8]:
    return _resize((image / 16 * 255).astype(np.uint8), DIGIT, "BICUBIC")


def _resize(image: NDArray[np.uint8], size: int, filter_: str) -> NDArray[np.uint8]:
    pillow = need("PIL.Image", "pillow")
    resized: Any = pillow.fromarray(image).resize((size, size), pillow.Resampling[filter_])
    return np.asarray(resized)


def _part(name: str, values: Any, split: str) -> Series:
    whole = np.asarray(values, np.float64)
    cut = int(len(whole) * TRAIN_SHARE_OF_SERIES)
    return Series(name, whole[:cut] if split == "train" else whole[cut:], 0 if split == "train" else cut)
