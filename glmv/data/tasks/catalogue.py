"""All built-in tasks."""

from glmv.data.tasks import charts, clips, digits, scenes
from glmv.data.tasks.task import Task

DIGITS = "handwritten digits (scikit-learn)"
SERIES = "public series (statsmodels)"
PHOTOS = "photographs (scikit-learn)"
DRAWN = "drawn"

TASKS: dict[str, Task] = {
    "read": Task("ocr", "ocr", digits.READ_LEVELS, digits.read, DIGITS),
    "sum": Task("math", "math", digits.SUM_LEVELS, digits.sum_, DIGITS),
    "value": Task("chart", "chart", charts.VALUE_LEVELS, charts.value, SERIES),
    "largest": Task("chart", "chart", charts.LARGEST_LEVELS, charts.largest, SERIES),
    "count": Task("vqa", "vqa", scenes.COUNT_LEVELS, scenes.count, DRAWN),
    "photo": Task("vqa", "vqa", scenes.PHOTO_LEVELS, scenes.photo, PHOTOS),
    "shape": Task("vqa", "vqa", scenes.SHAPE_LEVELS, scenes.shape, DRAWN),
    "box": Task("grounding", "grounding", scenes.BOX_LEVELS, scenes.box, f"{DRAWN}, {PHOTOS}"),
    "tap": Task("click", "click", scenes.TAP_LEVELS, scenes.tap, DRAWN),
    "when": Task("video", "video", clips.WHEN_LEVELS, clips.when, DRAWN),
}
