"""Reading and writing datasets: verl's sets as they are, and one clear error for each kind of bad row."""

import base64
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from glmv.data import read, write
from glmv.data.image import open_image
from glmv.data.process import tiny_processor
from glmv.data.types import Sample

PROMPT = [{"role": "user", "content": "<image>read"}]
VIDEO_PROMPT = [{"role": "user", "content": "<video>when"}]
REWARD = {"style": "rule", "ground_truth": "7", "kind": "ocr"}
CLIP = {"frames": ["images/1.png"], "fps": 2}
ROW = {
    "data_source": "glmv/ocr",
    "prompt": PROMPT,
    "images": ["images/1.png"],
    "reward_model": REWARD,
    "extra_info": {"id": "r1", "domain": "ocr", "difficulty": 0},
    "response": "7",
}


def png():
    out = io.BytesIO()
    Image.new("RGB", (84, 84), (1, 2, 3)).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/1.png").write_bytes(png())
    return tmp_path


def put(folder, *rows):
    """A data.jsonl of rows; a string is written as it is."""
    lines = [r if isinstance(r, str) else json.dumps(r) for r in rows]
    (folder / "data.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "data.jsonl"


def test_a_row(folder):
    (sample,) = read(put(folder, ROW))
    assert sample == Sample(
        id="r1",
        data_source="glmv/ocr",
        prompt=({"role": "user", "content": "<image>read"},),
        images=("images/1.png",),
        reward_model=REWARD,
        extra_info={"domain": "ocr", "difficulty": 0},
        response="7",
    )
    assert sample.domain == "ocr"


def test_what_is_written_is_read_back(folder):
    clip = {"frames": ["images/1.png", "images/1.png"], "fps": 2.0}
    samples = [
        *read(put(folder, ROW)),
        Sample(
            "é",
            "x",
            ({"role": "user", "content": "<video>wie groß?"},),
            (),
            (clip,),
            {"ground_truth": [[1, 2.5]]},
        ),
        Sample("t", "x", ({"role": "system", "content": "s"}, {"role": "user", "content": ""}), response=""),
    ]
    write(folder / "out.jsonl", samples)
    assert read(folder / "out.jsonl") == samples
    assert len((folder / "out.jsonl").read_text(encoding="utf-8").splitlines()) == 3


def test_missing_ids_are_file_and_line(folder):
    row = ROW | {"extra_info": {}}
    assert [s.id for s in read(put(folder, row, "", row))] == ["data:1", "data:3"]


def test_verl_parquet_with_bytes(folder):
    """verl's image sets: structs with all fields of any row, image bytes inside, no kind, no id."""
    rows = [
        {
            "data_source": "hiyouga/geometry3k",
            "prompt": [{"content": "<image>\nFind x.", "role": "user"}],
            "images": [{"bytes": png(), "path": None}],
            "ability": "math",
            "reward_model": {"ground_truth": "3", "style": "rule"},
            "extra_info": {"answer": "3", "index": 0, "split": "train"},
        },
        {
            "data_source": "text",
            "prompt": [{"content": "2 + 2?", "role": "user"}],
            "images": None,
            "ability": "math",
            "reward_model": {"ground_truth": "4", "style": "rule"},
            "extra_info": {"answer": None, "index": 1, "split": None},
        },
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    first, second = read(folder / "train.parquet")
    assert (first.id, second.id) == ("train:1", "train:2")
    assert first.domain == "hiyouga/geometry3k"
    assert base64.b64decode(first.images[0].partition(",")[2]) == png()
    assert open_image(first.images[0], folder).getpixel((0, 0)) == (1, 2, 3)
    assert second.images == ()
    assert second.extra_info == {"index": 1}
    assert second.reward_model == {"ground_truth": "4", "style": "rule"}
    write(folder / "copy.jsonl", [first, second])
    assert read(folder / "copy.jsonl") == [first, second]


@pytest.mark.parametrize(
    "form", ["images/1.png", {"path": "images/1.png"}, {"path": "images/1.png", "bytes": None}]
)
def test_forms_of_an_image(folder, form):
    (sample,) = read(put(folder, ROW | {"images": [form]}))
    assert sample.images == ("images/1.png",)
    assert tiny_processor().prompt(sample, folder).grid.tolist() == [[1, 6, 6]]


def test_forms_of_a_video(folder):
    frames = ["images/1.png"] * 2
    for form in ({"frames": frames, "fps": 2}, {"video": frames, "fps": 2.0}):
        (sample,) = read(put(folder, ROW | {"prompt": VIDEO_PROMPT, "images": [], "videos": [form]}))
        assert sample.videos == ({"frames": frames, "fps": 2.0},)


def bad(message, **change):
    return pytest.param(json.dumps(ROW | change), message, id=message[:40])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        bad("images[0] images/2.png does not exist", images=["images/2.png"]),
        bad("images[0] images does not exist", images=["images"]),
        bad("videos[0].frames[1] f.png does not exist", prompt=VIDEO_PROMPT, images=[],
            videos=[{"frames": ["images/1.png", "f.png"], "fps": 2}]),
        ('{"data_source": ', "broken JSON: Expecting value at column 16"),
        ("[1, 2]", "a row must be a JSON object, got list"),
        bad("data_source must be a string, got nothing", data_source=None),
        bad("prompt must be a list of messages, got nothing", prompt=None),
        bad("prompt must be a list of messages, got read (str)", prompt="read"),
        bad("prompt must be a list of messages, got [] (list)", prompt=[]),
        bad("prompt[0] must have a role among system, user, assistant", prompt=[{"role": "tool"}]),
        bad("prompt[0].content must be a string, got [", prompt=[{"role": "user", "content": [{}]}]),
        bad("the last message of prompt must be the user's, got role 'assistant'",
            prompt=[*PROMPT, {"role": "assistant", "content": "7"}]),
        bad("the prompt has 1 <image> but images has 0 entries", images=[]),
        bad("the prompt has 1 <image> but images has 2 entries", images=["images/1.png"] * 2),
        bad("images must be a list, got images/1.png (str)", images="images/1.png"),
        bad("images[0] must be a path", images=[7]),
        bad("images[0] must be a path", images=[{"url": "x"}]),
        bad("images[0].bytes must be bytes, got x (str)", images=[{"bytes": "x"}]),
        bad("images[0] is an address on the web", images=["https://example.org/x.png"]),
        bad("the prompt has 0 <video> but videos has 1 entries", videos=[CLIP]),
        bad('videos[0] must be {"frames": [paths], "fps": number}, got a.mp4 (str)', videos=["a.mp4"]),
        bad('videos[0] must be {"frames"', videos=[{"video": "a.mp4"}]),
        bad("videos[0].fps must be a positive number of frames per second, got", videos=[{"frames": ["x"]}]),
        bad("videos[0].fps must be a positive number", videos=[{"frames": ["x"], "fps": 0}]),
        bad("reward_model must be an object, got 7 (int)", reward_model=7),
        bad("reward_model: kind must be one of math", reward_model={"ground_truth": "1", "kind": "ocrr"}),
        bad("reward_model: ", reward_model={"ground_truth": 1.5, "kind": "grounding"}),
        bad("reward_model: ocr has no option 'cas'", reward_model=REWARD | {"options": {"cas": 1}}),
        bad("a row needs reward_model.ground_truth or response", reward_model={"kind": "ocr"}, response=None),
        bad("response must be a string, got 7 (int)", response=7),
        bad("extra_info must be an object, got [] (list)", extra_info=[]),
        bad("the id 'r1' stands on line 1 too"),
    ],
)  # fmt: skip
def test_bad_rows_name_file_and_line(folder, line, message):
    with pytest.raises(ValueError, match=r"^data\.jsonl:3: ") as error:
        read(put(folder, ROW, "", line))
    assert str(error.value).startswith(f"data.jsonl:3: {message}")


def test_text_that_is_not_utf8(folder):
    (folder / "data.jsonl").write_bytes(json.dumps(ROW).encode() + b"\n" + b'{"data_source": "\xff"}\n')
    with pytest.raises(ValueError, match=r"^data\.jsonl:2: 'utf-8' codec can't decode byte 0xff"):
        read(folder / "data.jsonl")


def test_bad_parquet_row_names_file_and_row(folder):
    rows = [ROW, ROW | {"images": ["none.png"], "extra_info": {"id": "r2"}}]
    pq.write_table(pa.Table.from_pylist(rows), folder / "x.parquet")
    with pytest.raises(ValueError, match=r"^x\.parquet:2: images\[0\] none\.png does not exist"):
        read(folder / "x.parquet")


def test_bad_files(folder):
    with pytest.raises(ValueError, match=r"must be a \.jsonl or \.parquet file, got .*x\.csv"):
        read(folder / "x.csv")
    with pytest.raises(ValueError, match=r"dataset .*none\.jsonl does not exist"):
        read(folder / "none.jsonl")
    (folder / "x.parquet").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"x\.parquet is not a parquet file"):
        read(folder / "x.parquet")
    with pytest.raises(ValueError, match=r"path must end with \.jsonl, got .*x\.parquet"):
        write(folder / "x.parquet", [])


def test_options(folder):
    missing = ROW | {"images": ["none.png"]}
    assert read(put(folder, missing), check_files=False)[0].images == ("none.png",)
    assert read(put(folder, ROW | {"reward_model": {"ground_truth": 1}}))[0].reward_model == {
        "ground_truth": 1
    }
