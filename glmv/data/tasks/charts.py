"""Bar charts drawn from real series: the value of the red bar, the largest bar (chart)."""

import numpy as np
from numpy.typing import NDArray

from glmv.data.tasks import draw, sources
from glmv.data.tasks.draw import COLORS, OTHERS, RED
from glmv.data.tasks.layout import to_tens
from glmv.data.tasks.task import Drawing, Level

VALUE_BARS, LARGEST_BARS = (1, 2, 3, 6), (2, 3, 6)
LARGEST_LEAD = (20, 12, 11)  # by how much the largest bar leads at least: it is alone at its ten
VALUE_LEVELS = (
    Level("1 bar", 0.11),
    Level("2 bars", 0.11, 0.56),
    Level("3 bars", 0.11, 0.38),
    Level("6 bars", 0.11, 0.29),
)
LARGEST_LEVELS = (Level("2 bars", 0.50), Level("3 bars", 0.33), Level("6 bars", 0.17))


def value(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """The value of the red bar to the tens; it stands at most 3 from a multiple of ten."""
    count = VALUE_BARS[difficulty]
    ten = int(rng.integers(1, 10)) * 10
    while True:
        levels, source = _window(split, max(count, 3), rng)
        levels = levels[:count]
        asked, span = int(rng.integers(count)), rng.uniform(30, 60)
        values = ten + rng.integers(-3, 4) + (levels - levels[asked]) * span
        if values.min() >= 4 and values.max() <= 97:
            break
    rest = OTHERS[int(rng.integers(len(OTHERS)))]
    image = draw.canvas()
    colors = tuple(RED if i == asked else rest for i in range(count))
    draw.put_bars(image, values, colors, first_column=int(rng.integers(max(4 - count, 1))))
    trace, answer = f"bar {asked + 1}", str(ten)
    return Drawing("value of red bar", trace, answer, answer, image=image, sources=(source,))


def largest(difficulty: int, split: str, rng: np.random.Generator) -> Drawing:
    """Which bar is the largest, counted from the left; each place is as likely."""
    count, lead = LARGEST_BARS[difficulty], LARGEST_LEAD[difficulty]
    place = int(rng.integers(count))
    while True:
        levels, source = _window(split, count, rng)
        values = rng.uniform(5, 40) + levels * rng.uniform(30, 57)
        if int(values.argmax()) == place and values[place] - np.delete(values, place).max() >= lead:
            break
    image = draw.canvas()
    draw.put_bars(image, values, (list(COLORS.values())[int(rng.integers(len(COLORS)))],) * count)
    trace, answer = "at " + ", ".join(str(to_tens(round(v))) for v in values), str(place + 1)
    return Drawing("largest bar", trace, answer, answer, image=image, sources=(source,))


def _window(split: str, count: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], str]:
    """`count` evenly spaced values of a random series, scaled to 0..1 -> values, source.

    The form of the curve is real, its level and span are not.
    """
    bank = sources.series(split)
    while True:
        series = bank[int(rng.integers(len(bank)))]
        step = int(rng.integers(1, 5))
        start = int(rng.integers(0, len(series.values) - count * step))
        stop = start + count * step
        values = series.values[start:stop:step]
        low, high = values.min(), values.max()
        if high > low:
            source = f"series:{series.name}[{series.offset + start}:{series.offset + stop}:{step}]"
            return (values - low) / (high - low), source
