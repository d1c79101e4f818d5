"""The random start: reproducible, and at the scales from which the tiny model learns."""

import pytest
import torch

from glmv.model import Glm4v, init_, preset
from tests.model.cases import PATCH_DIM
from tests.numeric import MODEL_INIT_STD_RTOL

SCALES = {
    "model.visual.patch_embed.proj.weight": PATCH_DIM**-0.5,
    "model.visual.embeddings.position_embedding.weight": 0.3,
    "model.visual.blocks.1.attn.qkv.weight": 96**-0.5,
    "model.visual.blocks.1.attn.proj.weight": 0.02,
    "model.visual.blocks.1.mlp.up_proj.weight": 96**-0.5,
    "model.visual.blocks.1.mlp.down_proj.weight": 0.02,
    "model.visual.downsample.weight": (4 * 96) ** -0.5,
    "model.visual.merger.up_proj.weight": 128**-0.5,
    "model.visual.merger.down_proj.weight": 4 * 256**-0.5,
    "model.language_model.embed_tokens.weight": 1.0,
    "model.language_model.layers.2.self_attn.o_proj.weight": 128**-0.5,
    "model.language_model.layers.2.mlp.down_proj.weight": 320**-0.5,
    "lm_head.weight": 0.02,
}


def tiny(seed: int, dtype: torch.dtype = torch.float32) -> Glm4v:
    return init_(Glm4v(preset("tiny")).to(dtype), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", SCALES)
def test_matrices_have_their_scale(name: str) -> None:
    weight = tiny(0).state_dict()[name]
    want = SCALES[name] * torch.ones(())
    few = max(1.0, (10_000 / weight.numel()) ** 0.5)  # the position table has 3,456 entries
    torch.testing.assert_close(weight.std(), want, rtol=few * MODEL_INIT_STD_RTOL, atol=0)


def test_vectors_have_their_constant() -> None:
    for name, p in tiny(0).state_dict().items():
        if p.ndim == 1:
            post_norm = "post_self_attn_layernorm" in name or "post_mlp_layernorm" in name
            value = 0.0 if name.endswith("bias") else 0.5 if post_norm else 1.0
            assert torch.equal(p, torch.full_like(p, value)), name


def test_the_generator_alone_decides() -> None:
    torch.manual_seed(1)
    first = tiny(7).state_dict()
    torch.manual_seed(2)
    second, other, low = tiny(7).state_dict(), tiny(8).state_dict(), tiny(7, torch.bfloat16).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(torch.equal(first[name].bfloat16(), low[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])


@torch.no_grad()
def test_visual_features_come_out_at_the_scale_of_embeddings() -> None:
    """What the gain of the merger is for: without it the image enters the decoder 25 times too quiet."""
    model = tiny(0)
    patches = torch.randn(8 * 36, PATCH_DIM, generator=torch.Generator().manual_seed(0))
    grid = torch.tensor([[1, 6, 6]] * 8)
    features = model.model.visual(patches, grid, torch.arange(9, dtype=torch.int32) * 36)
    rms = features.square().mean().sqrt()
    assert 0.3 < rms < 3
