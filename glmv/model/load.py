"""Checkpoints in transformers' layout: config.json and safetensors, whole or in shards with an index."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from glmv.model.config import Glm4vConfig

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def read_config(directory: str | Path) -> Glm4vConfig:
    """The config.json of a checkpoint. Raises FileNotFoundError, or ValueError that names the file."""
    path = Path(directory) / "config.json"
    hf = _read_json(path)
    try:
        return Glm4vConfig.from_hf(hf)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def load_weights(
    model: nn.Module, directory: str | Path, dtype: torch.dtype | None, device: torch.device | str
) -> None:
    """Replace every parameter of `model` (which may be on "meta") by the tensor of its name, one at a time.

    Decoder layers past the last one of the model (multi-token prediction heads) are skipped.
    Raises one ValueError that lists all missing, unexpected and misshaped tensors, before any is read.
    """
    expected = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    shapes: dict[str, tuple[int, ...]] = {}
    files = _weight_files(Path(directory))
    for file in files:
        with safe_open(file, framework="pt") as tensors:
            shapes |= {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    _check_names(expected, shapes, directory)
    for file in files:
        with safe_open(file, framework="pt", device=str(device)) as tensors:
            for name in tensors.keys():  # noqa: SIM118
                if name in expected:
                    # A copy: what safetensors returns on the CPU is a window on the mapped file.
                    tensor = tensors.get_tensor(name).to(dtype=dtype, copy=True)
                    path, _, leaf = name.rpartition(".")
                    model.get_submodule(path).load_state_dict({leaf: tensor}, strict=False, assign=True)


def save_weights(model: nn.Module, directory: str | Path, max_shard_bytes: int) -> None:
    """model.safetensors, or shards of at most `max_shard_bytes` (or one tensor) each and their index.

    Every file is written under another name first and then renamed, so that it is there whole or not at all.
    Weight files of an earlier save that this one does not overwrite are removed.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    shards = _shards(model.state_dict(), max_shard_bytes)
    names = [f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)]
    names = [SINGLE] if len(shards) == 1 else names
    for name, shard in zip(names, shards, strict=True):
        write = _tensor_writer(shard)
        _write_whole(folder / name, write)
    if len(shards) > 1:
        weight_map = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        total = sum(t.nbytes for shard in shards for t in shard.values())
        _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": weight_map})
        names.append(INDEX)
    for stale in [*folder.glob("model*.safetensors"), folder / INDEX]:
        if stale.name not in names:
            stale.unlink(missing_ok=True)


def save_config(config: Glm4vConfig, dtype: torch.dtype, directory: str | Path) -> None:
    """config.json, and generation_config.json with the tokens that end an answer."""
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(folder / "config.json", {**config.to_hf(), "dtype": str(dtype).removeprefix("torch.")})
    generation = {"eos_token_id": list(config.eos_token_ids) or None, "pad_token_id": config.pad_token_id}
    _write_json(folder / "generation_config.json", generation)


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if not (folder / INDEX).is_file():
        raise FileNotFoundError(f"{folder} must hold {SINGLE} or {INDEX}, it has neither")
    files = [folder / name for name in sorted(set(_read_json(folder / INDEX)["weight_map"].values()))]
    absent = [file.name for file in files if not file.is_file()]
    if absent:
        raise FileNotFoundError(f"{folder / INDEX} names files that are not there: {', '.join(absent)}")
    return files


def _check_names(
    expected: dict[str, tuple[int, ...]], found: dict[str, tuple[int, ...]], directory: str | Path
) -> None:
    last = max(layer for name in expected if (layer := _layer(name)) is not None)
    extra = [name for name in found if name not in expected and (_layer(name) or 0) <= last]
    wrong = [
        f"{name} must be {list(shape)}, got {list(found[name])}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    missing = [name for name in expected if name not in found]
    problems = {"missing": missing, "unexpected": extra, "wrong shape": wrong}
    if any(problems.values()):
        lists = [f"{len(names)} {kind}: {'; '.join(names)}" for kind, names in problems.items() if names]
        raise ValueError(f"tensors of {directory} do not fit the config. " + ". ".join(lists))


def _layer(name: str) -> int | None:
    match = re.match(r"model\.language_model\.layers\.(\d+)\.", name)
    return None if match is None else int(match[1])


def _shards(tensors: dict[str, Tensor], max_bytes: int) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if shards[-1] and size + tensor.nbytes > max_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    return shards


def _tensor_writer(shard: dict[str, Tensor]) -> Callable[[Path], None]:
    return lambda path: save_file(shard, path, metadata={"format": "pt"})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    _write_whole(path, lambda temporary: temporary.write_text(json.dumps(value, indent=2) + "\n"))


def _write_whole(path: Path, write: Callable[[Path], object]) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there")
    try:
        value = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path} must hold a JSON object, got {type(value).__name__}")
    return value
