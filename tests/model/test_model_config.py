"""Configurations: what transformers understands by the same file, published numbers, refused values."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Glm4vConfig as HFConfig
from transformers import Glm4vForConditionalGeneration as HF

from glmv.model import Glm4v, Glm4vConfig, preset
from tests.model.cases import hf_config

LEGACY_TEXT = {
    "rope_theta": 5000.0,
    "rope_scaling": {"type": "default", "mrope_section": [4, 6, 6]},
    "partial_rotary_factor": 0.5,
    "hidden_size": 256,
    "num_attention_heads": 4,
}
VISION = {"depth": 1, "out_hidden_size": 256}


def parameters(config: Glm4vConfig) -> tuple[int, int]:
    """All parameters, those of the vision tower."""
    with torch.device("meta"):
        model = Glm4v(config)
    return tuple(sum(p.numel() for p in m.parameters()) for m in (model, model.model.visual))  # type: ignore


# ---- presets -------------------------------------------------------------------------------------------


def test_the_9b_preset_has_the_published_size() -> None:
    assert parameters(preset("glm-4.1v-9b")) == (10_292_777_472, 892_498_432)


def test_the_9b_preset_has_the_tensors_of_transformers() -> None:
    with torch.device("meta"):
        ours = Glm4v(preset("glm-4.1v-9b")).state_dict()
        theirs = HF(HFConfig(**preset("glm-4.1v-9b").to_hf())).state_dict()
    assert len(ours) == 704
    assert {k: v.shape for k, v in ours.items()} == {k: v.shape for k, v in theirs.items()}


def test_the_tiny_preset_is_tiny_and_square_with_its_image() -> None:
    config = preset("tiny")
    total, _ = parameters(config)
    assert 1_100_000 < total < 1_300_000
    assert config.vision.table_side == 84 // 14
    assert config.vision.patch_dim == 1176


def test_a_preset_takes_the_ids_of_a_tokenizer() -> None:
    ids = {"<|image|>": 40, "<|video|>": 41, "<|begin_of_image|>": 42, "<|end_of_image|>": 43}
    ids |= {"<|begin_of_video|>": 44, "<|end_of_video|>": 45, "<|endoftext|>": 46, "<|user|>": 47}
    config = preset("tiny", vocab_size=48, token_id=ids.__getitem__)
    assert (config.text.vocab_size, config.image_token_id, config.video_end_token_id) == (48, 40, 45)
    assert (config.eos_token_ids, config.pad_token_id) == ((46, 47), 46)


def test_an_unknown_preset_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"name must be one of 'tiny', 'glm-4.1v-9b', got 'small'"):
        preset("small")


# ---- from and to transformers --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tiny", "glm-4.1v-9b"])
def test_round_trip(name: str) -> None:
    config = preset(name)
    assert Glm4vConfig.from_hf(config.to_hf()) == config


@pytest.mark.parametrize("name", ["tiny", "glm-4.1v-9b"])
def test_transformers_understands_what_we_write(name: str) -> None:
    config = preset(name)
    hf = HFConfig(**config.to_hf())
    assert Glm4vConfig.from_hf(hf.to_dict()) == config
    assert hf.text_config.rope_parameters == {
        "rope_type": "default",
        "rope_theta": config.text.rope_theta,
        "partial_rotary_factor": 0.5,
        "mrope_section": list(config.text.mrope_section),
    }
    assert hf.vision_config.rope_parameters == {"rope_type": "axial", "rope_theta": config.vision.rope_theta}
    # vLLM creates the q, k, v biases only if this says so.
    assert hf.text_config.attention_bias is True


def test_legacy_nested_rope_keys_mean_what_transformers_takes_them_for() -> None:
    legacy = {"model_type": "glm4v", "text_config": LEGACY_TEXT, "vision_config": VISION}
    modern = HFConfig(**{k: dict(v) if isinstance(v, dict) else v for k, v in legacy.items()}).to_dict()
    config = Glm4vConfig.from_hf(legacy)
    assert config == Glm4vConfig.from_hf(modern)
    assert (config.text.rope_theta, config.text.mrope_section, config.text.rotary_dim) == (
        5000.0,
        (4, 6, 6),
        32,
    )


def test_a_flat_legacy_config_keeps_its_rope() -> None:
    """transformers 5 drops mrope_section and the partial factor of such a file without a word."""
    flat = {"model_type": "glm4v", "vision_config": VISION, **LEGACY_TEXT}
    nested = {"model_type": "glm4v", "text_config": LEGACY_TEXT, "vision_config": VISION}
    assert Glm4vConfig.from_hf(flat) == Glm4vConfig.from_hf(nested)


def test_absent_keys_take_the_defaults_of_transformers() -> None:
    rope = {"rope_parameters": {"partial_rotary_factor": 0.5}}
    config = Glm4vConfig.from_hf({"model_type": "glm4v", "text_config": rope})
    assert config == Glm4vConfig.from_hf(
        HFConfig(text_config={"rope_parameters": dict(rope["rope_parameters"])}).to_dict()
    )
    assert config == Glm4vConfig()


def test_without_a_partial_factor_the_whole_head_turns() -> None:
    """As in transformers; the published sections then do not fit, which is better said than guessed."""
    rope = {"rope_scaling": {"type": "default", "mrope_section": [8, 12, 12]}, "rope_theta": 10000.0}
    with pytest.raises(ValueError, match="sum to half of the 128 rotated lanes"):
        Glm4vConfig.from_hf({"model_type": "glm4v", "text_config": rope})


def test_end_tokens_are_read_from_either_level() -> None:
    hf = hf_config().to_dict()
    assert Glm4vConfig.from_hf({**hf, "eos_token_id": 7}).eos_token_ids == (7,)
    hf["text_config"]["eos_token_id"] = [7, 9]
    assert Glm4vConfig.from_hf(hf).eos_token_ids == (7, 9)


# ---- values that would change the maths ----------------------------------------------------------------

REFUSED: list[tuple[str, Any]] = [
    ("model_type", "glm4v_moe"),
    ("tie_word_embeddings", True),
    ("quantization_config", {"bits": 8}),
    ("text_config.model_type", "glm4v_moe_text"),
    ("text_config.hidden_act", "gelu"),
    ("text_config.attention_bias", False),
    ("text_config.attention_dropout", 0.1),
    ("text_config.head_dim", 64),
    ("text_config.use_qk_norm", True),
    ("vision_config.hidden_act", "gelu"),
    ("vision_config.attention_bias", True),
    ("vision_config.image_size", [84, 56]),
]


@pytest.mark.parametrize(("key", "value"), REFUSED, ids=[key for key, _ in REFUSED])
def test_a_value_that_is_not_implemented_is_refused(key: str, value: object) -> None:
    hf = hf_config().to_dict()
    *path, leaf = key.split(".")
    (hf[path[0]] if path else hf)[leaf] = value
    with pytest.raises(ValueError, match=f"config: {key} must be "):
        Glm4vConfig.from_hf(hf)


@pytest.mark.parametrize(("section", "kind"), [("text_config", "yarn"), ("vision_config", "linear")])
def test_another_rope_is_refused(section: str, kind: str) -> None:
    hf = hf_config().to_dict()
    hf[section]["rope_parameters"]["rope_type"] = kind
    with pytest.raises(ValueError, match=f"{section}.rope_type must be .*, got '{kind}'"):
        Glm4vConfig.from_hf(hf)


BAD_SIZES: list[tuple[str, dict[str, Any], str]] = [
    ("text", {"mrope_section": (8, 12, 12)}, r"mrope_section must be 3 sections that sum to half of the 16"),
    ("text", {"num_key_value_heads": 3}, "num_key_value_heads must be a divisor of 4"),
    ("text", {"num_hidden_layers": 0}, "num_hidden_layers must be positive"),
    ("vision", {"num_heads": 5}, r"hidden_size must be a multiple of 4 \* num_heads"),
    ("vision", {"image_size": 90}, "image_size must be a multiple of patch_size"),
    ("vision", {"out_hidden_size": 64}, "out_hidden_size must be text_config.hidden_size = 128"),
    ("", {"image_token_id": 128}, r"image_token_id must be in \[0, vocab_size=128\), got 128"),
    ("", {"eos_token_ids": (0, -1)}, r"eos_token_ids\[1\] must be in"),
]


@pytest.mark.parametrize(("part", "change", "message"), BAD_SIZES, ids=[str(c) for _, c, _ in BAD_SIZES])
def test_sizes_that_do_not_fit_are_named(part: str, change: dict[str, Any], message: str) -> None:
    config = preset("tiny")
    with pytest.raises(ValueError, match=message):
        replace(config, **({part: replace(getattr(config, part), **change)} if part else change))
