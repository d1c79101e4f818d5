"""Grounding and clicks: hand-made geometry, and the matching against exhaustive search."""

import itertools
import json
from typing import Any

import numpy as np
import pytest

from glmv.rewards import verify
from glmv.rewards.grounding import iou
from glmv.rewards.matching import max_matching

A, B = [100, 100, 300, 300], [500, 500, 700, 800]


def grounding(answer: Any, reference: Any, **options: Any) -> tuple[float | None, str]:
    verdict = verify(
        "grounding", answer if isinstance(answer, str) else json.dumps(answer), reference, options
    )
    return verdict.value, verdict.reason


def click(answer: Any, reference: Any, **options: Any) -> tuple[float | None, str]:
    verdict = verify("click", answer if isinstance(answer, str) else json.dumps(answer), reference, options)
    return verdict.value, verdict.reason


@pytest.mark.parametrize(
    "answer",
    [
        [A, B],
        [B, A],
        [{"bbox_2d": A}, {"bbox_2d": B}],
        [{"bbox": A, "label": "x"}, B],
        "```json\n" + str([A, B]) + "\n```",
    ],
)
def test_layouts(answer: Any) -> None:
    assert grounding(answer, [A, B]) == (1.0, "ok")


def test_one_box_may_stand_alone() -> None:
    assert grounding(A, [A]) == (1.0, "ok")
    assert grounding({"bbox_2d": A}, A) == (1.0, "ok")


@pytest.mark.parametrize(
    ("answer", "fraction", "f1"),
    [
        ([A], 1 / 2, 2 / 3),
        ([A, B, [0, 0, 9, 9]], 2 / 3, 4 / 5),
        ([A, A], 1 / 2, 1 / 2),
        ([A, "B"], 1 / 2, 1 / 2),
        ([A, [700, 500, 500, 800]], 1 / 2, 1 / 2),
        ([[0, 0, 1000, 1000]], 0, 0),
    ],
)
def test_partial_credit(answer: Any, fraction: float, f1: float) -> None:
    assert grounding(answer, [A, B])[0] == pytest.approx(fraction)
    assert grounding(answer, [A, B], scheme="f1")[0] == pytest.approx(f1)


def test_threshold_is_strict_for_fraction_only() -> None:
    half = [[100, 100, 300, 200]]
    assert grounding(half, [A]) == (0.0, "wrong")
    assert grounding(half, [A], scheme="f1") == (1.0, "ok")
    assert grounding(half, [A], iou_threshold=0.49) == (1.0, "ok")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ("[[NaN, 100, 300, 300]]", "bad_geometry"),
        ("[[0, 0, Infinity, Infinity]]", "bad_geometry"),
        ("[[0, 0, 1e999, 1e999]]", "bad_geometry"),
        (f"[[0, 0, {'9' * 5000}, 300]]", "bad_geometry"),
        ("[[300, 300, 100, 100]]", "bad_geometry"),
        ("[[100, 100, 100, 300]]", "bad_geometry"),
        ("[[-1, 100, 300, 300]]", "bad_geometry"),
        ("[[100, 100, 300, 1001]]", "bad_geometry"),
        ("[[true, 100, 300, 300]]", "bad_geometry"),
        ('[["100", "100", "300", "300"]]', "bad_geometry"),
        ('[{"bbox_2d": [100, 100, 300, 300], "bbox": [0, 0, 9, 9]}]', "bad_geometry"),
        ('[{"bbox_2d": [0, 0, 9, 9], "bbox_2d": [100, 100, 300, 300]}]', "bad_json"),
        ("7", "bad_geometry"),
        ("[[100, 100, 300, 300]", "bad_json"),
        ("[[100, 100, 300, 300]] or so", "bad_json"),
        ("[(100, 100, 300, 300)]", "bad_json"),
        ("[" * 5000 + "]" * 5000, "too_deep"),
        ('["]", ' * 5000, "too_deep"),
        (" " * 70_000 + "[[100, 100, 300, 300]]", "too_long"),
        (str([[i, 0, i + 1, 9] for i in range(33)]), "too_many_boxes"),
    ],
)
def test_bad_boxes(answer: str, reason: str) -> None:
    assert grounding(answer, [A]) == (0.0, reason)


def test_tiling_the_image_does_not_pay() -> None:
    tiles = [[x, y, x + 200, y + 200] for x in range(0, 1000, 200) for y in range(0, 1000, 200)]
    value, _ = grounding(tiles, [[200, 200, 400, 400]])
    assert value == pytest.approx(1 / 25)
    assert grounding([A] * 32, [A])[0] == pytest.approx(1 / 32)
    many = [[i, j, i + 100, j + 100] for i in range(0, 900, 30) for j in range(0, 900, 30)]
    assert grounding(many, [A] * 200)[1] == "too_many_boxes"


def test_nothing_to_find() -> None:
    assert grounding([], []) == (1.0, "ok")
    assert grounding([A], []) == (0.0, "wrong")


def test_absolute_coordinates() -> None:
    box = [[1200, 50, 1600, 150]]
    assert grounding(box, box, coord="abs", image_size=[2000, 500]) == (1.0, "ok")
    assert grounding(box, box, coord="abs", image_size=[1500, 500]) == (0.0, "bad_geometry")
    assert grounding(box, box) == (0.0, "bad_geometry")


def test_iou_by_hand() -> None:
    found = iou([(0, 0, 2, 2), (5, 5, 6, 6)], [(1, 1, 3, 3), (0, 0, 2, 2)])
    np.testing.assert_array_equal(found, [[1 / 7, 1.0], [0.0, 0.0]])
    assert iou([], [(0, 0, 1, 1)]).shape == (0, 1)


@pytest.mark.parametrize("seed", range(20))
def test_matching_against_exhaustive_search(seed: int) -> None:
    rng = np.random.default_rng(seed)
    edges = rng.random((rng.integers(1, 6), rng.integers(1, 6))) < 0.4
    rows, columns = edges.shape
    if rows > columns:
        edges, rows, columns = edges.T, columns, rows
    best = max(sum(edges[i, p[i]] for i in range(rows)) for p in itertools.permutations(range(columns), rows))
    assert max_matching(edges) == best == max_matching(edges.T)


@pytest.mark.parametrize(
    "answer", [[{"point_2d": [50, 60]}], {"point_2d": [50, 60]}, [50, 60], [[50, 60]], {"point": [50, 60]}]
)
def test_click_layouts(answer: Any) -> None:
    assert click(answer, [40, 50, 60, 70]) == (1.0, "ok")
    assert click(answer, [[40, 50, 60, 70]]) == (1.0, "ok")
    assert click(answer, [0, 0, 40, 50]) == (0.0, "wrong")


@pytest.mark.parametrize("point", [[40, 50], [60, 70], [40, 70], [60, 50]])
def test_edges_are_inside(point: list[int]) -> None:
    assert click(point, [40, 50, 60, 70]) == (1.0, "ok")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "empty"),
        ("[]", "empty"),
        ("(50, 60)", "bad_json"),
        ("[50, 60], [50, 60]", "bad_json"),
        ("[[50, 60], [50, 60]]", "wrong"),
        ("[50]", "bad_geometry"),
        ("[50, 60, 50, 60]", "bad_geometry"),
        ("[NaN, 60]", "bad_geometry"),
        ("[1050, 60]", "bad_geometry"),
        ("[true, 60]", "bad_geometry"),
        ('{"point_2d": [50, 60], "point": [0, 0]}', "bad_geometry"),
        ('{"point_2d": [0, 0], "point_2d": [50, 60]}', "bad_json"),
        ('{"x": 50, "y": 60}', "bad_geometry"),
        ("null", "bad_geometry"),
    ],
)
def test_bad_clicks(answer: str, reason: str) -> None:
    assert click(answer, [40, 50, 60, 70]) == (0.0, reason)
