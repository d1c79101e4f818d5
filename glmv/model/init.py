"""Random weights from which a small model learns quickly on a CPU."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from glmv.model.glm4v import Glm4v

# Standard deviation of matrices, by name; all others have 1 / sqrt(fan_in).
_STD = {
    "*.position_embedding.weight": 0.3,  # near the scale of the normalised patch features it is added to
    "*.visual.blocks.*.attn.proj.weight": 0.02,  # the branches of the vision tower start as near-identities
    "*.visual.blocks.*.mlp.down_proj.weight": 0.02,
    "*.embed_tokens.weight": 1.0,
    "lm_head.weight": 0.02,  # a flat first distribution
}
# A gated product shrinks: this brings the visual features to the scale of the token embeddings.
_GAIN = {"*.merger.down_proj.weight": 4.0}
# Vectors; all other biases are 0 and all other norm weights 1.
_CONSTANT = {"*.post_self_attn_layernorm.weight": 0.5, "*.post_mlp_layernorm.weight": 0.5}


@torch.no_grad()
def init_(model: Glm4v, generator: torch.Generator) -> Glm4v:
    """Overwrite all parameters in place; returns the model.

    Draws come from `generator` alone, in fp32 on its device: the same state gives the same weights whatever
    the device of the model, and their rounding in bf16. The scales are those with which the "tiny" preset
    was found to learn to see; with a table of 0.02 and no gain in the merger it stays near chance.
    """
    for name, p in model.named_parameters():
        if p.ndim == 1:
            p.fill_(_lookup(_CONSTANT, name, 0.0 if name.endswith(".bias") else 1.0))
        else:
            draw = torch.randn(p.shape, generator=generator, device=generator.device)
            p.copy_(draw.mul_(_std(name, p)))
    return model


def _std(name: str, p: Tensor) -> float:
    fan_in = p[0].numel()
    return float(_lookup(_STD, name, _lookup(_GAIN, name, 1.0) * fan_in**-0.5))


def _lookup(table: Mapping[str, float], name: str, default: float) -> float:
    return next((value for pattern, value in table.items() if fnmatchcase(name, pattern)), default)
