"""A model and its processor: from a preset with a random start, or from a directory."""

from pathlib import Path

import torch

from glmv.data.process import Processor, tiny_processor
from glmv.model import Glm4v
from glmv.model.config import preset
from glmv.model.init import init_


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
