"""Built-in visual tasks, made from real inputs that packages ship; see docs/tasks.md."""

from glmv.data.tasks.catalogue import TASKS
from glmv.data.tasks.dataset import make, make_dataset, make_demo_sets, make_item
from glmv.data.tasks.task import Drawing, Item, Level, Task

__all__ = ["TASKS", "Drawing", "Item", "Level", "Task", "make", "make_dataset", "make_demo_sets", "make_item"]
