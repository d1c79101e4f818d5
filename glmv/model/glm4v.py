"""Glm4v: GLM-4.1V over packed batches, on `glmv.ops`.

`state_dict()` has the names and shapes of transformers' Glm4vForConditionalGeneration (and copies nothing):
it feeds any engine that takes those. In memory the two convolutions of the vision tower are matrices.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from glmv import check
from glmv.data.types import PackedBatch
from glmv.model import load
from glmv.model.cache import Cache
from glmv.model.config import Glm4vConfig
from glmv.model.text import Decoder, Sequences
from glmv.model.vision import VisionTower
from glmv.ops import Routing


@dataclass(frozen=True)
class ModelOutput:
    hidden: Tensor  # [T, C] after the final norm; logits are hidden @ lm_head_weight.T
    routings: tuple[Routing, ...] = ()  # one per mixture-of-experts layer
    balance_loss: Tensor | None = None  # scalar


class Glm4v(nn.Module):
    """The dense model (GLM-4.1V, GLM-4.6V-Flash).

    A new model has PyTorch's default weights: call `init_` to train from scratch, or use `from_pretrained`.
    """

    def __init__(self, config: Glm4vConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Towers(config)
        self.lm_head = nn.Linear(config.text.hidden_size, config.text.vocab_size, bias=False)

    @property
    def lm_head_weight(self) -> Tensor:
        """[V, C]: what the loss ops and samplers multiply `hidden` with."""
        return self.lm_head.weight

    def forward(
        self, batch: PackedBatch, cache: Cache | None = None, replay: Tensor | None = None
    ) -> ModelOutput:
        """Hidden states of every packed token.

        The batch may mix text, images and videos; features of each distinct image are computed once. With a
        cache (under torch.no_grad) segment b continues row b of it, and the cache takes the new tokens in.
        Raises ValueError or TypeError that names the field of the batch that does not fit, ValueError for a
        cache row that would overflow and for `replay` (experts to replay: a dense model has none).
        """
        check.that("Glm4v", "replay", replay is None, "None: a dense model routes nothing", replay)
        self._check(batch)
        x = self._embed(batch)
        append = None
        if cache is not None:
            self._check_cache(cache, x)
            append = cache.append(batch.cu_seqlens, len(batch.tokens), batch.max_seqlen)
        sequences = Sequences(batch.pos, batch.cu_seqlens, batch.max_seqlen, append)
        hidden: Tensor = self.model.language_model(x, sequences)
        if append is not None:
            append.commit()
        return ModelOutput(hidden)

    def _embed(self, batch: PackedBatch) -> Tensor:
        """Token embeddings [T, C], with visual features in the rows whose modality is not text."""
        x: Tensor = self.model.language_model.embed_tokens(batch.tokens)
        rows = batch.modality.nonzero()[:, 0]
        count = batch.visual_index.numel()
        expected = f"[{len(rows)}]: one entry for each token with modality > 0"
        check.that("Glm4v", "visual_index", count == len(rows), expected, batch.visual_index)
        if count == 0:
            return x
        features = self.model.visual(batch.patches, batch.grid, batch.vis_cu_seqlens)
        return x.index_copy(0, rows, features.index_select(0, batch.visual_index).to(x.dtype))

    def _check(self, batch: PackedBatch) -> None:
        device, num_tokens = self.lm_head.weight.device, batch.tokens.numel()
        check.tensor("Glm4v", "tokens", batch.tokens, ("T",), (torch.int64,), device)
        check.tensor("Glm4v", "pos", batch.pos, (3, f"T={num_tokens}"), check.INDEX, device)
        check.tensor("Glm4v", "modality", batch.modality, (f"T={num_tokens}",), (torch.int8,), device)
        check.tensor("Glm4v", "visual_index", batch.visual_index, ("visual tokens",), (torch.int64,), device)
        check.cu_seqlens("Glm4v", "cu_seqlens", batch.cu_seqlens, num_tokens, device)

    def _check_cache(self, cache: Cache, x: Tensor) -> None:
        check.that("Glm4v", "cache", not x.requires_grad, "used under torch.no_grad()", "grad mode on")
        text = self.config.text
        shape = (text.num_hidden_layers, "B", "max_len", text.num_key_value_heads, text.head_dim)
        check.tensor("Glm4v", "cache.k", cache.k, shape, (x.dtype,), x.device)

    @classmethod
    def from_pretrained(
        cls,
        directory: str | Path,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
    ) -> "Glm4v":
        """A checkpoint in transformers' layout: config.json and safetensors, whole or in shards.

        `dtype=None` keeps the dtype of each stored tensor. Tensors are read one by one, so the peak is the
        model itself. Raises FileNotFoundError for missing files, ValueError if config or tensors do not fit.
        """
        with torch.device("meta"):
            model = cls(load.read_config(directory))
        load.load_weights(model, directory, dtype, device)
        return model

    def save_pretrained(self, directory: str | Path, *, max_shard_bytes: int = 5 * 10**9) -> None:
        """Write config.json, generation_config.json and safetensors that transformers and vLLM load.

        Each file appears whole or not at all; weight files of an earlier save in the directory are replaced.
        """
        load.save_config(self.config, self.lm_head.weight.dtype, directory)
        load.save_weights(self, directory, max_shard_bytes)


class Towers(nn.Module):
    """The `model.` level of the parameter names."""

    def __init__(self, config: Glm4vConfig) -> None:
        super().__init__()
        self.visual = VisionTower(config.vision)
        self.language_model = Decoder(config.text)
