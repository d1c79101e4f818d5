"""A small set of built-in tasks and a random tiny model, made once a session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from glmv.data import read
from glmv.data.process import Processor
from glmv.data.tasks import make_dataset
from glmv.data.types import Prompt, Sample
from glmv.model import Glm4v
from glmv.train.loading import load_model


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tasks")
    make_dataset(out, n=64, seed=3, split="train")
    return out


@pytest.fixture(scope="session")
def samples(data_dir: Path) -> list[Sample]:
    return read(data_dir / "train.jsonl")


@pytest.fixture
def tiny() -> Iterator[tuple[Glm4v, Processor]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield load_model("tiny", seed=1)
    torch.set_num_threads(threads)


@pytest.fixture
def prompts(tiny: tuple[Glm4v, Processor], samples: list[Sample], data_dir: Path) -> list[Prompt]:
    return [tiny[1].prompt(s, data_dir) for s in samples[:6]]
