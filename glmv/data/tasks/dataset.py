"""Write built-in tasks as a dataset: JSONL with verl's fields, and one PNG a picture or frame.

    <out>/<name>.jsonl          one row an item, tasks and difficulties in turn
    <out>/images/<name>-*.png

The same seed gives the same bytes. Every item has a random stream of its own (seed, name, row number).
"""

import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from glmv import check
from glmv.data.sample import write
from glmv.data.tasks.catalogue import TASKS
from glmv.data.tasks.draw import Image
from glmv.data.tasks.sources import SPLITS, need
from glmv.data.tasks.task import FPS, Drawing, Item
from glmv.data.types import Sample

# Beside the real inputs the pixels decide: one picture in five is held out, so that none is in both splits,
# even where a task has few of them.
HELDOUT_OF = 5


def make_item(task: str, difficulty: int, split: str, rng: np.random.Generator) -> Item:
    """Draw one item of a task.

    `difficulty` counts from 0; `split` is "train" or "heldout": no source item and no picture is in both.
    Raises ValueError for an unknown task, split or difficulty, ModuleNotFoundError for a missing package.
    """
    check.choice("make_item", "task", task, tuple(TASKS))
    check.choice("make_item", "split", split, SPLITS)
    levels = len(TASKS[task].levels)
    check.that(
        "make_item", "difficulty", difficulty in range(levels), f"0 to {levels - 1} for {task}", difficulty
    )
    while True:
        drawing = TASKS[task].make(difficulty, split, rng)
        picture = _fingerprint(drawing)
        if (picture % HELDOUT_OF == 0) == (split == "heldout"):
            return Item(task, difficulty, split, drawing, drawing.sources or (f"scene:{picture:08x}",))


def make_dataset(
    out: str | Path,
    n: int,
    seed: int = 0,
    split: str = "train",
    tasks: Sequence[str] | None = None,
    name: str | None = None,
    progress: Callable[[], object] | None = None,
) -> Path:
    """Write `n` items, spread evenly over tasks and, within each, over difficulties -> path of the JSONL.

    `tasks`: names, all by default. `name`: of the file, the split by default. `progress` is called after
    each item. Raises as `make_item` does.
    """
    check.that("make_dataset", "n", n >= 1, "at least 1", n)
    check.that("make_dataset", "seed", seed >= 0, "at least 0", seed)
    check.choice("make_dataset", "split", split, SPLITS)
    names = tuple(TASKS) if tasks is None else tuple(tasks)
    check.that("make_dataset", "tasks", len(names) > 0, "at least one name", names)
    for task in names:
        check.choice("make_dataset", "tasks", task, tuple(TASKS))
    folder, name = Path(out), name or split
    (folder / "images").mkdir(parents=True, exist_ok=True)
    samples = []
    for row in range(n):
        task = names[row % len(names)]
        difficulty = row // len(names) % len(TASKS[task].levels)
        rng = np.random.default_rng([seed, zlib.crc32(name.encode()), row])
        item = make_item(task, difficulty, split, rng)
        samples.append(_save(item, folder, f"{name}-{row:06d}"))
        if progress is not None:
            progress()
    path = folder / f"{name}.jsonl"
    write(path, samples)
    return path


def make_demo_sets(
    out: str | Path,
    seed: int = 0,
    sft: int = 9600,
    rl: int = 2400,
    heldout: int = 420,
    progress: Callable[[], object] | None = None,
) -> dict[str, Path]:
    """The demo's three sets in one folder: sft.jsonl and rl.jsonl of the training split, heldout.jsonl.

    `sft`, `rl`, `heldout`: rows of each. heldout.jsonl is written last: where it exists, all three are whole.
    """
    parts = {"sft": ("train", sft), "rl": ("train", rl), "heldout": ("heldout", heldout)}
    return {
        name: make_dataset(out, rows, seed, split, name=name, progress=progress)
        for name, (split, rows) in parts.items()
    }


def make(out: str, n: int = 1000, split: str = "train", seed: int = 0, tasks: list[str] | None = None) -> str:
    """Make a dataset of built-in visual tasks from real inputs; nothing is downloaded.

    Args:
        out: folder; gets <split>.jsonl and images/.
        n: rows, spread evenly over tasks and difficulties.
        split: train or heldout; no source item and no picture is in both.
        seed: the same seed gives the same bytes.
        tasks: names of tasks; all by default.
    """
    from glmv.train.progress import Progress

    with Progress("data", n) as bar:
        return str(make_dataset(out, n, seed, split, tasks, progress=bar.advance))


def _fingerprint(drawing: Drawing) -> int:
    pictures = drawing.frames if drawing.image is None else (drawing.image,)
    value = 0
    for picture in pictures:
        value = zlib.crc32(picture.data, value)
    return value


def _save(item: Item, folder: Path, name: str) -> Sample:
    """Write an item's pictures and return its row."""
    task, drawing = TASKS[item.task], item.drawing
    frames = _save_frames(drawing.frames, folder, name)
    return Sample(
        id=name,
        data_source=f"glmv/{task.domain}",
        prompt=({"role": "user", "content": item.content},),
        images=() if drawing.image is None else (_save_png(drawing.image, folder, name),),
        videos=({"frames": frames, "fps": FPS},) if frames else (),
        reward_model={
            "style": "rule",
            "ground_truth": drawing.truth,
            "kind": task.kind,
            "options": dict(task.options),
        },
        extra_info={
            "domain": task.domain,
            "task": item.task,
            "difficulty": item.difficulty,
            "split": item.split,
            "source": " ".join(item.sources),
            "chance": round(task.levels[item.difficulty].chance, 3),
        },
        response=item.response,
    )


def _save_frames(frames: Sequence[Image], folder: Path, name: str) -> list[str]:
    """Frames that look the same share a file."""
    paths: dict[bytes, str] = {}
    for frame in frames:
        key = frame.tobytes()
        if key not in paths:
            paths[key] = _save_png(frame, folder, f"{name}-{len(paths)}")
    return [paths[frame.tobytes()] for frame in frames]


def _save_png(image: Image, folder: Path, name: str) -> str:
    path = f"images/{name}.png"
    need("PIL.Image", "pillow").fromarray(image).save(folder / path, compress_level=1)
    return path
