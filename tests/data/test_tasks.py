"""The built-in tasks: what they draw is read back from the pixels, and the splits share nothing."""

import importlib
import itertools
import re
import sys
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import ndimage
from sklearn.datasets import load_digits

from glmv.data import read
from glmv.data.process import tiny_processor
from glmv.data.tasks import TASKS, make_dataset, make_demo_sets, make_item
from glmv.data.tasks.draw import CELL, SIDE
from glmv.rewards import score
from tests.data.task_items import CELLS, bar_heights, extent, items, levels, per_mille, picture, red, tile

RESPONSE = re.compile(
    r"<think>[^<>]+</think><answer><\|begin_of_box\|>([^<>]+)<\|end_of_box\|></answer>", re.ASCII
)


# ---- every item ----------------------------------------------------------------------------------------


def test_the_domains_and_their_verifiers() -> None:
    found = {(task.domain, task.kind) for task in TASKS.values()}
    names = ("ocr", "math", "chart", "vqa", "grounding", "click", "video")
    assert found == {(name, name) for name in names}
    assert all(len(task.levels) in (3, 4) for task in TASKS.values())


@pytest.mark.parametrize(("task", "difficulty"), CELLS)
def test_pictures_are_of_the_declared_kind(task: str, difficulty: int) -> None:
    for item in items(task, difficulty, 10):
        drawing = item.drawing
        assert (drawing.image is None) == (task == "when") == bool(drawing.frames)
        shapes = {(picture.shape, picture.dtype) for picture in drawing.frames or (drawing.image,)}
        assert shapes == {((56, 56, 3) if task == "when" else (84, 84, 3), np.dtype(np.uint8))}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every task at every difficulty, at least twice."""
    return make_dataset(tmp_path_factory.mktemp("tasks"), n=10 * 12, seed=1)


def test_the_loader_and_the_processor_read_it(dataset: Path) -> None:
    processor = tiny_processor()
    for sample in read(dataset):
        prompt = processor.prompt(sample, dataset.parent)
        if sample.domain == "video":
            seconds = len(sample.videos[0]["frames"]) // 2
            assert prompt.grid.tolist() == [[seconds, 4, 4]]
            assert int((prompt.modality == 2).sum()) == 4 * seconds
        else:
            assert prompt.grid.tolist() == [[1, 6, 6]]
            assert int((prompt.modality == 1).sum()) == 9


def test_responses_have_the_format_and_full_reward(dataset: Path) -> None:
    processor = tiny_processor()
    for sample in read(dataset):
        assert sample.response is not None
        assert RESPONSE.fullmatch(sample.response)
        tokens = processor.tokenizer.encode(sample.response)  # raises for a word that the vocabulary lacks
        assert processor.tokenizer.decode(tokens) == sample.response
        assert 8 <= len(tokens) <= 36
        think = tokens.index(processor.tokenizer.id("</think>"))
        assert think <= 24  # the default budgets of sampling, the end token included
        assert len(tokens) - think <= 24
        reward = score(sample.response, sample)
        assert reward.parts["accuracy"].value == 1, (sample.id, reward)
        assert reward.total == 1


def test_rows_say_where_they_come_from(dataset: Path) -> None:
    rows = read(dataset)
    assert Counter((r.extra_info["task"]) for r in rows) == dict.fromkeys(TASKS, 12)
    assert {(r.extra_info["task"], r.extra_info["difficulty"]) for r in rows} == set(CELLS)
    for row in rows:
        task = TASKS[row.extra_info["task"]]
        assert row.data_source == f"glmv/{task.domain}"
        assert row.extra_info["source"]
        assert row.extra_info["split"] == "train"
        assert row.extra_info["chance"] == round(task.levels[row.extra_info["difficulty"]].chance, 3)
    assert len({row.id for row in rows}) == len(rows)


# ---- the same seed, the two splits ---------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.*"))}


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        make_dataset(tmp_path / name, n=30, seed=seed)
    first, again, other = (contents(tmp_path / name) for name in "abc")
    assert len(first) > 30
    assert first == again
    assert first["train.jsonl"] != other["train.jsonl"]


def test_a_row_does_not_depend_on_how_many_follow(tmp_path: Path) -> None:
    short, long = (make_dataset(tmp_path / str(n), n=n, seed=5) for n in (12, 25))
    assert long.read_text().startswith(short.read_text())


@pytest.mark.parametrize(("task", "difficulty"), CELLS)
def test_splits_share_no_source_and_no_picture(task: str, difficulty: int) -> None:
    seen = {}
    for split in ("train", "heldout"):
        found = items(task, difficulty, 60, split)
        sources = {source for item in found for source in item.sources}
        drawings = [item.drawing for item in found]
        pictures = {zlib.crc32(b"".join(p.tobytes() for p in d.frames or (d.image,))) for d in drawings}
        seen[split] = (sources, pictures)
    assert not seen["train"][0] & seen["heldout"][0]
    assert not seen["train"][1] & seen["heldout"][1]


def test_held_out_inputs_are_the_tails() -> None:
    numbers: dict[str, list[int]] = {"train": [], "heldout": []}
    ends: dict[str, dict[str, list[int]]] = {"train": {}, "heldout": {}}
    for split in numbers:
        for item in items("sum", 1, 200, split):
            numbers[split] += [int(source.removeprefix("digits:")) for source in item.sources]
        for item in items("largest", 1, 400, split):
            name, start, stop = re.findall(r"series:(\w+)\[(\d+):(\d+)", item.sources[0])[0]
            ends[split].setdefault(name, []).append(int(stop if split == "train" else start))
    assert max(numbers["train"]) < 1400 <= min(numbers["heldout"])
    assert len(ends["train"]) == len(ends["heldout"]) == 7
    assert all(max(ends["train"][name]) <= min(ends["heldout"][name]) for name in ends["train"])


def test_the_demo_sets(tmp_path: Path) -> None:
    ticks: list[int] = []
    paths = make_demo_sets(tmp_path, seed=2, sft=30, rl=20, heldout=40, progress=lambda: ticks.append(1))
    rows = {name: read(path) for name, path in paths.items()}
    assert {name: len(found) for name, found in rows.items()} == {"sft": 30, "rl": 20, "heldout": 40}
    assert len(ticks) == 90
    splits = {name: {row.extra_info["split"] for row in found} for name, found in rows.items()}
    assert splits == {"sft": {"train"}, "rl": {"train"}, "heldout": {"heldout"}}
    tasks = Counter((row.extra_info["task"]) for row in rows["heldout"])
    assert tasks == dict.fromkeys(TASKS, 4)
    assert len({row.id for found in rows.values() for row in found}) == 90
    assert {row.images + row.videos for row in rows["sft"] if row.images}.isdisjoint(
        {row.images + row.videos for row in rows["rl"] if row.images}
    )


# ---- the answer, read from the pixels ------------------------------------------------------------------


@pytest.mark.parametrize("task", ["read", "sum"])
def test_digits_are_the_labelled_images(task: str) -> None:
    data = load_digits()
    for item in itertools.chain.from_iterable(items(task, d) for d in levels(task)):
        index = [int(source.removeprefix("digits:")) for source in item.sources]
        digits = [int(data.target[i]) for i in index]
        want = "".join(map(str, digits)) if task == "read" else str(sum(digits))
        assert item.drawing.truth == want
        ink = 255 - picture(item).min(-1).astype(float)
        cells = [n for n in range(1, 10) if tile(ink, n)[8:20, 8:20].mean() > 20]
        if TASKS[task].levels[item.difficulty].text.endswith("off the grid"):
            continue
        assert len(cells) == len(digits)
        for cell, i in zip(cells, index, strict=True):
            small = tile(ink, cell)[2:26, 2:26].reshape(8, 3, 8, 3).mean((1, 3))
            assert np.corrcoef(small.ravel(), data.images[i].ravel())[0, 1] > 0.9
        if task == "read":
            assert item.drawing.trace == ", ".join(f"{c} = {d}" for c, d in zip(cells, digits, strict=True))


@pytest.mark.parametrize("difficulty", levels("value"))
def test_value_is_the_height_of_the_red_bar(difficulty: int) -> None:
    for item in items("value", difficulty):
        height = float(red(picture(item)).any(1).sum()) * 100 / SIDE
        assert abs(height - int(item.drawing.truth)) < 4
        assert 10 <= int(item.drawing.truth) <= 90


@pytest.mark.parametrize(("difficulty", "bars"), [(0, 2), (1, 3), (2, 6)])
def test_largest_is_the_highest_bar(difficulty: int, bars: int) -> None:
    for item in items("largest", difficulty):
        heights = bar_heights(picture(item), bars)
        assert int(item.drawing.truth) == int(np.argmax(heights)) + 1
        assert sorted(heights)[-1] - sorted(heights)[-2] > 9  # a person sees it
        said = [int(v) for v in re.findall(r"\d+", item.drawing.trace)]
        assert np.abs(np.array(said) - heights).max() < 7


@pytest.mark.parametrize("difficulty", levels("count"))
def test_count_is_the_number_of_red_regions(difficulty: int) -> None:
    for item in items("count", difficulty):
        mask = red(picture(item))
        cells = [n for n in range(1, 10) if tile(mask, n)[CELL // 2, CELL // 2]]
        assert item.drawing.trace == "at " + ", ".join(map(str, cells))
        assert int(item.drawing.truth) == len(cells)
        if difficulty < 2:  # there no two shapes touch
            assert ndimage.label(mask)[1] == len(cells)


@pytest.mark.parametrize("difficulty", [0, 1])
def test_photo_counts_the_orange_pieces(difficulty: int) -> None:
    for item in items("photo", difficulty):
        image = picture(item).astype(int)
        filled = {n for n in range(1, 10) if tile(image, n).min() < 250}
        orange = (image[..., 0] - image[..., 2] > 60) & (image[..., 0] > 150)
        share = {n: float(tile(orange, n).mean()) for n in filled}
        flowers = [int(n) for n in re.findall(r"\d+", item.drawing.trace)]
        assert int(item.drawing.truth) == len(flowers)
        assert set(flowers) == filled if difficulty == 0 else set(flowers) < filled
        others = [share[n] for n in filled - set(flowers)]
        assert min(share[n] for n in flowers) > max(others, default=0.2)


def test_the_hardest_photographs_are_grey() -> None:
    for item in items("photo", 2, 5):
        image = picture(item)
        assert (image == image[..., :1]).all()
        assert (image < 250).any()


@pytest.mark.parametrize("difficulty", levels("color"))
def test_color_is_that_of_the_widest_object(difficulty: int) -> None:
    names = {(220, 30, 30): "red", (30, 170, 50): "green", (40, 60, 220): "blue"}
    names |= {(235, 215, 40): "yellow", (150, 40, 190): "purple", (20, 20, 20): "black"}
    for item in items("color", difficulty):
        image = picture(item)
        widths = {}
        for rgb, name in names.items():
            mask = (image == rgb).all(-1)
            if mask.any():
                x1, _, x2, _ = extent(mask)
                widths[name] = x2 - x1
        assert len(widths) == difficulty + 1
        assert item.drawing.truth == max(widths, key=lambda name: widths[name])
        assert sorted(widths.values())[-1] - max(sorted(widths.values())[:-1], default=0) > 7


@pytest.mark.parametrize("difficulty", levels("box"))
def test_box_is_the_extent_of_the_red_pixels(difficulty: int) -> None:
    for item in items("box", difficulty):
        assert item.drawing.truth == [per_mille(extent(red(picture(item))))]


@pytest.mark.parametrize(("difficulty", "buttons"), [(0, 1), (1, 2), (2, 3), (3, 5)])
def test_tap_is_the_red_button_with_its_border(difficulty: int, buttons: int) -> None:
    for item in items("tap", difficulty):
        x1, y1, x2, y2 = extent(red(picture(item)))
        assert item.drawing.truth == per_mille([x1 - 1, y1 - 1, x2 + 1, y2 + 1])
        borders = (picture(item) == (60, 60, 90)).all(-1)
        assert ndimage.label(borders, np.ones((3, 3)))[1] == buttons


@pytest.mark.parametrize(("difficulty", "seconds"), [(0, 4), (1, 4), (2, 6), (3, 8)])
def test_when_is_the_second_that_shows_red(difficulty: int, seconds: int) -> None:
    for item in items("when", difficulty):
        shows = [bool(red(frame).any()) for frame in item.drawing.frames]
        assert len(shows) == 2 * seconds
        assert [i // 2 for i, there in enumerate(shows) if there] == [int(item.drawing.truth)] * 2


# ---- errors --------------------------------------------------------------------------------------------


def test_unknown_names_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match=r"make_item: task must be one of 'read', .*, got 'reed'"):
        make_item("reed", 0, "train", rng)
    with pytest.raises(ValueError, match="make_item: split must be one of 'train', 'heldout', got 'test'"):
        make_item("read", 0, "test", rng)
    for difficulty in (-1, 4):
        with pytest.raises(ValueError, match=f"difficulty must be 0 to 3 for read, got {difficulty}"):
            make_item("read", difficulty, "train", rng)
    with pytest.raises(ValueError, match=r"make_dataset: tasks must be one of 'read', .*, got 'clock'"):
        make_dataset(tmp_path, n=3, tasks=["read", "clock"])
    with pytest.raises(ValueError, match="make_dataset: tasks must be at least one name"):
        make_dataset(tmp_path, n=3, tasks=[])
    with pytest.raises(ValueError, match="make_dataset: n must be at least 1, got 0"):
        make_dataset(tmp_path, n=0)
    with pytest.raises(ValueError, match="make_dataset: split must be one of 'train', 'heldout', got 'test'"):
        make_dataset(tmp_path, n=1, split="test")
    with pytest.raises(ValueError, match="make_dataset: seed must be at least 0, got -1"):
        make_dataset(tmp_path, n=1, seed=-1)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("module", "package"), [("sklearn.datasets", "scikit-learn"), ("statsmodels.datasets", "statsmodels")]
)
def test_a_missing_package_is_one_line(module: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = importlib.import_module("glmv.data.tasks.sources")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModuleNotFoundError, match=rf"need {package}, .*: pip install 'glmv\[demo\]'"):
        sources.need(module, package)
