"""What the levels of the built-in tasks promise: the chance levels, and the table of docs/tasks.md."""

import numpy as np
import pytest
from rapidfuzz.distance import Levenshtein

from glmv.data.tasks import TASKS
from tests.data.task_items import CELLS, bar_heights, items, picture
from tests.numeric import TASK_CHANCE_ABS
from tests.tree import ROOT


def best_constant(task: str, truths: list) -> float:
    """The reward of the constant that is best on the first half of the truths, over the second half."""
    half = len(truths) // 2
    first, second = truths[:half], truths[half:]
    if task == "box":
        first, second = [t[0] for t in first], [t[0] for t in second]
    rate = {"read": edit_rate, "box": iou_rate, "tap": hit_rate}.get(task, equal_rate)
    candidates = sorted({"0123456", *first}) if task == "read" else first[:100]
    best = max(candidates, key=lambda c: rate(c, first))
    return rate(best, second)


def equal_rate(answer: str, truths: list[str]) -> float:
    return float(np.mean([answer == truth for truth in truths]))


def edit_rate(answer: str, truths: list[str]) -> float:
    return float(np.mean([Levenshtein.normalized_similarity(answer, truth) for truth in truths]))


def hit_rate(answer: list[int], truths: list[list[int]]) -> float:
    """Of a click in the middle of a box."""
    x, y, boxes = (answer[0] + answer[2]) / 2, (answer[1] + answer[3]) / 2, np.array(truths)
    inside = (boxes[:, 0] <= x) & (x <= boxes[:, 2]) & (boxes[:, 1] <= y) & (y <= boxes[:, 3])
    return float(inside.mean())


def iou_rate(answer: list[int], truths: list[list[int]]) -> float:
    a, b = np.array(answer), np.array(truths)
    sides = (np.minimum(a[2:], b[:, 2:]) - np.maximum(a[:2], b[:, :2])).clip(0)
    common = sides.prod(1)
    union = (a[2:] - a[:2]).prod() + (b[:, 2:] - b[:, :2]).prod(1) - common
    return float((common / union > 0.5).mean())


@pytest.mark.parametrize(("task", "difficulty"), CELLS)
def test_the_best_constant_earns_what_the_level_says(task: str, difficulty: int) -> None:
    truths = [item.drawing.truth for item in items(task, difficulty, 800)]
    said = TASKS[task].levels[difficulty].constant
    assert best_constant(task, truths) == pytest.approx(said, abs=TASK_CHANCE_ABS)


@pytest.mark.parametrize(("difficulty", "bars"), [(1, 2), (2, 3), (3, 6)])
def test_a_random_bar_earns_what_the_level_says(difficulty: int, bars: int) -> None:
    hits = []
    for item in items("value", difficulty, 400):
        near = np.abs(np.array(bar_heights(picture(item), bars)) - int(item.drawing.truth)) < 5
        hits.append(near.mean())
    said = TASKS["value"].levels[difficulty].any_object
    assert np.mean(hits) == pytest.approx(said, abs=TASK_CHANCE_ABS)


def test_chance_is_the_better_of_both() -> None:
    assert [level.chance for level in TASKS["tap"].levels] == [0.11, 1 / 2, 1 / 3, 1 / 5]


def test_the_documents_list_every_level() -> None:
    lines = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8").splitlines()
    for task, difficulty in CELLS:
        level = TASKS[task].levels[difficulty]
        other = f"{level.any_object:.0%}".rstrip("%") if level.any_object else ""
        row = f"| `{task}` | {difficulty} | {level.text} | {level.constant:.0%}".rstrip("%")
        assert f"{row} | {other} |" in lines
