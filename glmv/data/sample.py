"""Read and write datasets: JSONL or parquet with verl's fields, so that existing sets work as they are.

One row:

    {"data_source": "glmv/ocr", "images": ["images/1.png"],
     "prompt": [{"role": "user", "content": "<image>read"}],
     "reward_model": {"ground_truth": "7", "kind": "ocr"}, "response": "...",
     "extra_info": {"id": "...", "domain": "ocr"}}

Images are paths relative to the file's folder, {"path": ...} or {"bytes": ...} (which becomes a `data:` URI).
A video is {"frames": [paths], "fps": frames per second}. Every bad row is one error that names file and line.
"""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glmv.data.template import ROLES, count_placeholders
from glmv.data.types import Sample
from glmv.rewards.spec import check_reward_model

Json = Mapping[str, Any]


def read(path: str | Path, *, check_files: bool = True) -> list[Sample]:
    """Read a .jsonl or .parquet file.

    A row without an id gets "<file stem>:<line>". Images and frames must exist unless `check_files=False`.
    Where `reward_model.kind` names a verifier, its reference and options are checked. The first bad row
    raises ValueError: `data.jsonl:17: images[0] images/x.png does not exist (relative to data)`.
    """
    file = Path(path)
    if file.suffix not in _READERS:
        raise ValueError(f"a dataset must be a .jsonl or .parquet file, got {file}")
    if not file.is_file():
        raise ValueError(f"the dataset {file} does not exist")
    samples: list[Sample] = []
    lines: dict[str, int] = {}
    for number, text in _READERS[file.suffix](file):
        try:
            sample = _sample(text, f"{file.stem}:{number}")
            if check_files:
                _check_files(sample, file.parent)
            if sample.id in lines:
                raise ValueError(f"the id {sample.id!r} stands on line {lines[sample.id]} too")
        except ValueError as error:
            raise ValueError(f"{file.name}:{number}: {error}") from error
        lines[sample.id] = number
        samples.append(sample)
    return samples


def write(path: str | Path, samples: Sequence[Sample]) -> None:
    """Write a .jsonl file that `read` gives back as it was. Raises ValueError for another suffix."""
    file = Path(path)
    if file.suffix != ".jsonl":
        raise ValueError(f"write: path must end with .jsonl, got {file}")
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w", encoding="utf-8") as out:
        for sample in samples:
            out.write(json.dumps(_to_row(sample), ensure_ascii=False) + "\n")


def _to_row(sample: Sample) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "data_source": sample.data_source,
        "prompt": [dict(message) for message in sample.prompt],
        "images": list(sample.images),
        "videos": [dict(video) for video in sample.videos],
        "reward_model": dict(sample.reward_model),
        "extra_info": {**sample.extra_info, "id": sample.id},
        "response": sample.response,
    }
    return {name: value for name, value in fields.items() if value not in ([], {}, None)}


def _json_rows(file: Path) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line.rstrip()


def _parquet_rows(file: Path) -> Iterator[tuple[int, Json]]:
    import pyarrow as pa  # here, since it is large and JSONL needs none of it
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{file.name} is not a parquet file: {error}") from error
    number = 0
    for batch in table.iter_batches(batch_size=256):
        for row in batch.to_pylist():
            number += 1
            yield number, _without_none(row)


_READERS: dict[str, Callable[[Path], Iterator[tuple[int, bytes | Json]]]] = {
    ".jsonl": _json_rows,
    ".parquet": _parquet_rows,
}


def _without_none(value: Any) -> Any:
    """Parquet gives every struct of a column all fields of any row; those that a row lacks are None."""
    if isinstance(value, dict):
        return {key: _without_none(v) for key, v in value.items() if v is not None}
    return [_without_none(v) for v in value] if isinstance(value, list) else value


def _sample(row: bytes | Json, default_id: str) -> Sample:
    """Check one row and turn it into a Sample. Raises ValueError without file and line."""
    if isinstance(row, bytes):
        try:
            row = json.loads(row)
        except json.JSONDecodeError as error:
            raise ValueError(f"broken JSON: {error.msg} at column {error.colno}") from error
        if not isinstance(row, dict):
            raise ValueError(f"a row must be a JSON object, got {type(row).__name__}")
    reward, extra = _mapping(row, "reward_model"), _mapping(row, "extra_info")
    images, videos = _list(row, "images"), _list(row, "videos")
    sample = Sample(
        id=str(extra.get("id", default_id)),
        data_source=_text(row.get("data_source"), "data_source"),
        prompt=_chat(row.get("prompt")),
        images=tuple(_image(value, f"images[{i}]") for i, value in enumerate(images)),
        videos=tuple(_video(value, f"videos[{i}]") for i, value in enumerate(videos)),
        reward_model=reward,
        extra_info=extra,
        response=None if row.get("response") is None else _text(row["response"], "response"),
    )
    _check_target(sample)
    asked = count_placeholders(sample.prompt)
    for name, count, given in (("image", asked[0], images), ("video", asked[1], videos)):
        if count != len(given):
            raise ValueError(f"the prompt has {count} <{name}> but {name}s has {len(given)} entries")
    return replace(sample, extra_info={k: v for k, v in extra.items() if k != "id"})


def _check_target(sample: Sample) -> None:
    reward = sample.reward_model
    if "ground_truth" not in reward and sample.response is None:
        raise ValueError("a row needs reward_model.ground_truth or response, it has neither")
    if "kind" in reward:
        try:
            check_reward_model(reward)
        except ValueError as error:
            raise ValueError(f"reward_model: {error}") from error


def _check_files(sample: Sample, root: Path) -> None:
    for i, path in enumerate(sample.images):
        _check_file(path, f"images[{i}]", root)
    for i, video in enumerate(sample.videos):
        for j, path in enumerate(video["frames"]):
            _check_file(path, f"videos[{i}].frames[{j}]", root)


def _check_file(path: str, name: str, root: Path) -> None:
    if not path.startswith("data:") and not (root / path.removeprefix("file://")).is_file():
        raise ValueError(f"{name} {path} does not exist (relative to {root})")


def _chat(value: Any) -> tuple[Mapping[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"prompt must be a list of messages, got {_describe(value)}")
    for i, message in enumerate(value):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(
                f"prompt[{i}] must have a role among {', '.join(ROLES)}, got {_describe(message)}"
            )
        _text(message.get("content"), f"prompt[{i}].content")
    if value[-1]["role"] != "user":
        raise ValueError(f"the last message of prompt must be the user's, got role {value[-1]['role']!r}")
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def _image(value: Any, name: str) -> str:
    """A path, or a `data:` URI of the bytes."""
    if isinstance(value, dict) and value.get("bytes") is not None:
        content = value["bytes"]
        if not isinstance(content, bytes):
            raise ValueError(f"{name}.bytes must be bytes, got {_describe(content)}")
        return "data:image;base64," + base64.b64encode(content).decode("ascii")
    path = value.get("path") if isinstance(value, dict) else value
    if not isinstance(path, str) or not path:
        raise ValueError(
            f'{name} must be a path, {{"path": ...}} or {{"bytes": ...}}, got {_describe(value)}'
        )
    if path.startswith(("http://", "https://")):
        raise ValueError(f"{name} is an address on the web: download the file and give its path")
    return path


def _video(value: Any, name: str) -> Mapping[str, Any]:
    frames = value.get("frames", value.get("video")) if isinstance(value, dict) else value
    if not isinstance(frames, list) or not frames:
        raise ValueError(f'{name} must be {{"frames": [paths], "fps": number}}, got {_describe(value)}')
    fps = value.get("fps") if isinstance(value, dict) else None
    if isinstance(fps, bool) or not isinstance(fps, (int, float)) or not fps > 0:
        raise ValueError(f"{name}.fps must be a positive number of frames per second, got {_describe(fps)}")
    return {"frames": [_image(f, f"{name}.frames[{j}]") for j, f in enumerate(frames)], "fps": float(fps)}


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string, got {_describe(value)}")
    return value


def _mapping(row: Json, name: str) -> dict[str, Any]:
    value = row.get(name)
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{name} must be an object, got {_describe(value)}")
    return dict(value or {})


def _list(row: Json, name: str) -> list[Any]:
    value = row.get(name)
    if value is not None and not isinstance(value, list):
        raise ValueError(f"{name} must be a list, got {_describe(value)}")
    return list(value or [])


def _describe(value: Any) -> str:
    return "nothing" if value is None else f"{str(value)[:80]} ({type(value).__name__})"
