"""One click: the first and only point must lie inside the reference box, edges included."""

from collections.abc import Mapping
from typing import Any

from glmv.rewards import strict_json
from glmv.rewards.grounding import LARGEST_FRAME, Frame, as_box, frame, inside
from glmv.rewards.types import Judge, Score, SpecError

OPTIONS = frozenset({"coord", "image_size"})
KEYS = ("point_2d", "point")


def verify_click(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """The answer is `[{"point_2d": [x, y]}]`, `{"point_2d": [x, y]}`, `[x, y]` or `[[x, y]]`.

    Several points are wrong, whichever of them hits; a point outside the image is not moved into it.
    """
    x1, y1, x2, y2 = check_reference(reference)
    area = frame(options)
    if not answer.strip():
        return Score(0.0, "empty", answer)
    try:
        found = strict_json.loads(answer)
    except strict_json.JsonError as error:
        return Score(0.0, error.reason, answer)
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    elif isinstance(found, list) and any(isinstance(entry, list | dict) for entry in found):
        return Score(0.0, "wrong", answer, {"points": len(found)})
    point = as_point(found, area)
    if point is None:
        return Score(0.0, "empty" if found == [] else "bad_geometry", answer)
    hit = x1 <= point[0] <= x2 and y1 <= point[1] <= y2
    return Score(1.0, "ok", answer) if hit else Score(0.0, "wrong", answer)


def as_point(found: object, area: Frame) -> tuple[float, float] | None:
    """A finite point inside the image, or None."""
    if isinstance(found, dict):
        named = [found[key] for key in KEYS if key in found]
        found = named[0] if len(named) == 1 else None
    if not isinstance(found, list) or len(found) != 2:
        return None
    x, y = found
    return (x, y) if inside(x, area[0]) and inside(y, area[1]) else None


def check_reference(reference: object) -> tuple[float, float, float, float]:
    """One box `[x1, y1, x2, y2]`, or a list of one; a side may have no length."""
    if isinstance(reference, list) and len(reference) == 1:
        reference = reference[0]
    box = as_box(reference, LARGEST_FRAME, flat=True)
    if box is None:
        raise SpecError(f"click: the reference must be one box [x1, y1, x2, y2], got {reference!r}")
    return box
