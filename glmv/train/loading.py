"""What a training command starts from: a model with its processor, and the rows of a dataset."""

from pathlib import Path

import torch

from glmv.data import read
from glmv.data.process import Processor, tiny_processor
from glmv.data.types import Sample
from glmv.model import Glm4v
from glmv.model.config import preset
from glmv.model.init import init_
from glmv.rewards import KINDS


def load_model(name: str, seed: int = 0) -> tuple[Glm4v, Processor]:
    """Load `name`: "tiny" (random weights from `seed`) or a checkpoint directory in Hugging Face's layout.

    Raises:
        ValueError: neither the preset nor a directory.
    """
    if name == "tiny":
        processor = tiny_processor()
        tokenizer = processor.tokenizer
        model = Glm4v(preset("tiny", vocab_size=tokenizer.vocab_size, token_id=tokenizer.id))
        init_(model, torch.Generator().manual_seed(seed))
        return model, processor
    path = Path(name)
    if not path.is_dir():
        raise ValueError(f"model must be 'tiny' or a directory with a checkpoint, got {name!r}")
    return Glm4v.from_pretrained(path), Processor.load(path)


def read_rows(path: str) -> list[Sample]:
    """Read a dataset. Raises ValueError for one without rows."""
    samples = read(path)
    if not samples:
        raise ValueError(f"{path} has no rows")
    return samples


def read_prompts(path: str) -> list[Sample]:
    """Read a dataset whose answers will be scored by rule.

    Raises:
        ValueError: no rows, or a row whose answers no rule can score: they would all get 0 for ever.
    """
    samples = read_rows(path)
    for sample in samples:
        problem = _problem(sample)
        if problem:
            raise ValueError(f"{path}: row {sample.id} {problem}")
    return samples


def _problem(sample: Sample) -> str | None:
    """Why a row cannot be scored or has no difficulty, or None."""
    spec = sample.reward_model
    label = sample.extra_info.get("label", 0)
    if "ground_truth" not in spec:
        return "has no reward_model.ground_truth"
    if "kind" not in spec:
        return f"has no reward_model.kind: one of {', '.join(KINDS)}"
    if (spec.get("options") or {}).get("verifiable", True) is False:
        return "needs a judge (reward_model.options.verifiable is false), and this command has none"
    if label not in range(5):
        return f"has a bad extra_info.label: a label must be 0 (very easy) to 4 (very hard), got {label!r}"
    return None
