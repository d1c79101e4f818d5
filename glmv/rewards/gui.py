"""One step of a GUI agent: the action type, its target on the screen and its arguments must all be right."""

import math
from collections.abc import Mapping
from typing import Any

from glmv.rewards import options as opt
from glmv.rewards import strict_json
from glmv.rewards.action import is_nothing, read_action, reference_action, same_value
from glmv.rewards.grounding import LARGEST_FRAME, Box, Frame, as_box, frame, iou
from glmv.rewards.types import Judge, Score, SpecError, graded

OPTIONS = frozenset({"coord", "image_size", "iou_threshold", "max_distance"})
TYPE_KEYS = ("action_type", "action", "type", "name")
BOX_KEYS = ("box_2d", "bbox_2d", "bbox", "box")
POINT_KEYS = ("point_2d", "point", "coordinate", "position", "start_box")
# What an agent says about its action; not a part of it.
COMMENT_KEYS = frozenset({"thought", "reason", "explanation", "element_info", "description", "status"})
DEFAULT_DISTANCE = 20.0

Point = tuple[float, float]


def verify_gui(answer: str, reference: object, options: Mapping[str, Any], judge: Judge | None) -> Score:
    """The product of three parts: equal action type, target, arguments.

    A target box is right at IoU >= `iou_threshold` (0.5), a point inside the reference box, edges included;
    for a reference point, the point (or the centre of the box) within `max_distance` (20) of it. Every other
    field of the reference is an argument that must be equal, and no argument may be added. One action only.
    """
    target = reference_action(reference, "gui")
    area, threshold = frame(options), opt.number(options, "iou_threshold", 0.5, high=1.0)
    distance = opt.number(options, "max_distance", DEFAULT_DISTANCE)
    want_type, want_places, want_args = _split(target)
    want = _place(want_places, LARGEST_FRAME)
    if len(want_type) != 1 or (want_places and want is None):
        raise SpecError(f"gui: the reference needs one action type and at most one target, got {target!r}")
    if not answer.strip():
        return Score(0.0, "empty", answer)
    try:
        got_type, got_places, got_args = _split(read_action(answer))
    except strict_json.JsonError as error:
        return Score(0.0, error.reason, answer)
    got = _place(got_places, area)
    if want is not None and got_places and got is None:
        return Score(0.0, "bad_geometry", answer)
    parts = {
        "action": _same_type(got_type, want_type),
        "target": _hits(got, want, threshold, distance) if want is not None else not got_places,
        "arguments": _same_arguments(got_args, want_args),
    }
    return graded(float(all(parts.values())), answer, parts)


def check_reference(reference: object) -> dict[str, Any]:
    return reference_action(reference, "gui")


def _split(fields: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Action type, target and arguments of an action; what is empty is left out."""
    used = {key: value for key, value in fields.items() if not is_nothing(value)}
    named = next((key for key in TYPE_KEYS if key in used), None)
    places = {key: value for key, value in used.items() if key in BOX_KEYS + POINT_KEYS}
    arguments = {
        key: value
        for key, value in used.items()
        if key != named and key not in places and key not in COMMENT_KEYS
    }
    return ([used[named]] if named else []), places, arguments


def _same_type(got: list[Any], want: list[Any]) -> bool:
    names = [str(n).strip().casefold().replace("_", " ").replace("-", " ") for n in (*got, *want)]
    return len(names) == 2 and isinstance(got[0], str) and names[0] == names[1]


def _place(places: Mapping[str, Any], area: Frame) -> Box | Point | None:
    """The one box or point, or None if there is none, several, or one that is no place on the screen."""
    if len(places) != 1:
        return None
    [(key, value)] = places.items()
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if isinstance(value, list) and len(value) == 2 and key in POINT_KEYS:
        # A point is a box without sides.
        box = as_box([*value, *value], area, flat=True)
        return None if box is None else (box[0], box[1])
    return as_box(value, area)


def _hits(got: Box | Point | None, want: Box | Point, threshold: float, distance: float) -> bool:
    if got is None:
        return False
    if len(want) == 2:
        x, y = got if len(got) == 2 else ((got[0] + got[2]) / 2, (got[1] + got[3]) / 2)
        return math.hypot(x - want[0], y - want[1]) <= distance
    if len(got) == 2:
        return want[0] <= got[0] <= want[2] and want[1] <= got[1] <= want[3]
    return bool(iou([got], [want])[0, 0] >= threshold)


def _same_arguments(got: Mapping[str, Any], want: Mapping[str, Any]) -> bool:
    return got.keys() == want.keys() and all(same_value(got[key], want[key]) for key in want)
