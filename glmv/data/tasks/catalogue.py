"""All built-in tasks."""

from glmv.data.tasks import charts, clips, digits, scenes
from glmv.data.tasks.task import Task

DIGITS = "handwritten digits (scikit-learn)"
SERIES = "public series (statsmodels)"
PHOTOS = "photographs (scikit-learn)"
DRAWN = "drawn"

# No judge reads these answers: what the rule does not accept is wrong.
RULE = {"judge": False}
# The sum itself, not "7 + 8": an expression of the right value is no reading of the digits.
SUM = {"literal": True, "exact_int": True, **RULE}
# ChartQA's relaxed accuracy; values are multiples of ten, so the neighbours stay wrong.
CHART = {"rel_tol": 0.05, "answer_type": "number", **RULE}
BOX = {"coord": "norm1000", "iou_threshold": 0.5, "scheme": "fraction"}

TASKS: dict[str, Task] = {
    "read": Task("ocr", "ocr", digits.READ_LEVELS, digits.read, DIGITS),
    "sum": Task("math", "math", digits.SUM_LEVELS, digits.sum_, DIGITS, SUM),
    "value": Task("chart", "chart", charts.VALUE_LEVELS, charts.value, SERIES, CHART),
    "largest": Task("chart", "chart", charts.LARGEST_LEVELS, charts.largest, SERIES, CHART),
    "count": Task("vqa", "vqa", scenes.COUNT_LEVELS, scenes.count, DRAWN, RULE),
    "photo": Task("vqa", "vqa", scenes.PHOTO_LEVELS, scenes.photo, PHOTOS, RULE),
    "color": Task("vqa", "vqa", scenes.COLOR_LEVELS, scenes.color, DRAWN, RULE),
    "box": Task("grounding", "grounding", scenes.BOX_LEVELS, scenes.box, f"{DRAWN}, {PHOTOS}", BOX),
    "tap": Task("click", "click", scenes.TAP_LEVELS, scenes.tap, DRAWN),
    "when": Task("video", "video", clips.WHEN_LEVELS, clips.when, DRAWN, RULE),
}
