"""Boxes: how many of the references are found, by one-to-one matching on IoU."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from glmv.rewards import options as opt
from glmv.rewards import strict_json
from glmv.rewards.matching import max_matching
from glmv.rewards.types import Judge, Score, SpecError, graded

OPTIONS = frozenset({"coord", "image_size", "iou_threshold", "scheme"})
KEYS = ("bbox_2d", "box_2d", "bbox")
MIN_LIMIT_BOXES, MAX_FACTOR = 32, 4

Box = tuple[float, float, float, float]
Frame = tuple[float, float]  # the largest x and y of the image
LARGEST_FRAME = (1e6, 1e6)  # for references, whose image size may not be given


def verify_grounding(
    answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None
) -> Score:
    """The answer is JSON: `[[x1, y1, x2, y2], ...]`, `[{"bbox_2d": [...]}, ...]`, or one box.

    A box that is not finite, not ordered (x1 < x2, y1 < y2) or outside the image counts as a wrong box.
    `scheme` "fraction": matches with IoU > threshold over the larger of both counts; "f1": F1 of matches
    with IoU >= threshold. More than max(32, 4 x references) boxes score 0.
    """
    targets = check_reference(reference)
    scheme = opt.choice(options, "scheme", ("fraction", "f1"), "fraction")
    threshold = opt.number(options, "iou_threshold", 0.5, high=1.0)
    area = frame(options)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    try:
        entries = _entries(strict_json.loads(answer))
    except strict_json.JsonError as error:
        return Score(0.0, error.reason, answer)
    if entries is None:
        return Score(0.0, "bad_geometry", answer)
    if len(entries) > max(MIN_LIMIT_BOXES, MAX_FACTOR * len(targets)):
        return Score(0.0, "too_many_boxes", answer)
    if not entries:
        return Score(0.0, "empty", answer) if targets else Score(1.0, "ok", answer)
    boxes = [box for box in (as_box(entry, area) for entry in entries) if box is not None]
    overlap = iou(boxes, targets)
    matches = max_matching(overlap > threshold if scheme == "fraction" else overlap >= threshold)
    if scheme == "fraction":
        value = matches / max(len(entries), len(targets))
    else:
        value = 2 * matches / (len(entries) + len(targets))
    details = {"matches": matches, "boxes": len(entries), "valid": len(boxes)}
    return graded(value, answer, details, "wrong" if boxes else "bad_geometry")


def check_reference(reference: object) -> list[Box]:
    """A list of boxes, which may be empty, or one box."""
    entries = _entries(reference)
    boxes = [as_box(entry, LARGEST_FRAME) for entry in entries or ()]
    if entries is None or None in boxes:
        raise SpecError(f"grounding: the reference must be boxes [[x1, y1, x2, y2], ...], got {reference!r}")
    return [box for box in boxes if box is not None]


def frame(options: Mapping[str, Any]) -> Frame:
    """The coordinate range: 0..1000, or the image's own pixels with `coord` abs and `image_size` [w, h]."""
    if opt.choice(options, "coord", ("norm1000", "abs"), "norm1000") == "norm1000":
        return 1000.0, 1000.0
    size = options.get("image_size")
    if isinstance(size, list | tuple) and len(size) == 2 and all(inside(side, math.inf) for side in size):
        return float(size[0]), float(size[1])
    raise SpecError(f"options.image_size must be [width, height] when coord is abs, got {size!r}")


def inside(value: object, high: float) -> TypeGuard[float]:
    """True for a finite number in [0, high]; a bool is no number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and 0 <= value <= high
        and math.isfinite(value)
    )


def as_box(entry: object, area: Frame, flat: bool = False) -> Box | None:
    """An ordered box inside `area`, or None. `flat`: sides without length are allowed."""
    if isinstance(entry, dict):
        named = [entry[key] for key in KEYS if key in entry]
        entry = named[0] if len(named) == 1 else None
    if not isinstance(entry, list) or len(entry) != 4:
        return None
    x1, y1, x2, y2 = entry
    if not (inside(x1, area[0]) and inside(x2, area[0]) and inside(y1, area[1]) and inside(y2, area[1])):
        return None
    ordered = x1 <= x2 and y1 <= y2 if flat else x1 < x2 and y1 < y2
    return (x1, y1, x2, y2) if ordered else None


def iou(boxes: Sequence[Box], targets: Sequence[Box]) -> npt.NDArray[np.float64]:
    """Intersection over union of every pair, [boxes, targets]."""
    b = np.asarray(boxes, np.float64).reshape(-1, 1, 4)
    t = np.asarray(targets, np.float64).reshape(1, -1, 4)
    sides = np.minimum(b[..., 2:], t[..., 2:]) - np.maximum(b[..., :2], t[..., :2])
    common = sides.clip(min=0).prod(-1)
    union = (b[..., 2:] - b[..., :2]).prod(-1) + (t[..., 2:] - t[..., :2]).prod(-1) - common
    result: npt.NDArray[np.float64] = np.divide(common, union, out=np.zeros_like(common), where=union > 0)
    return result


def _entries(found: object) -> list[object] | None:
    """The list of box-like things, where one box counts as a list of one; None if this is no list."""
    if isinstance(found, dict):
        return [found]
    if not isinstance(found, list):
        return None
    single = len(found) == 4 and not any(isinstance(entry, list | dict) for entry in found)
    return [found] if single else list(found)
