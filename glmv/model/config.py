"""Sizes of a dense GLM-4.1V model, read from and written to the config.json of transformers.

Only what changes the maths or the tokens is kept. A value that our code would not honour (another
activation, another rope type, tied embeddings, quantised weights, ...) raises: a model that loads computes
what its config says.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from glmv import check


@dataclass(frozen=True)
class VisionConfig:
    """The vision tower. Defaults: transformers' Glm4vVisionConfig = the published 9B model."""

    depth: int = 24
    hidden_size: int = 1536
    num_heads: int = 12
    image_size: int = 336  # pixels a side that the position table was made for: (336 / 14)^2 = 576 rows
    patch_size: int = 14
    temporal_patch_size: int = 2
    in_channels: int = 3
    spatial_merge_size: int = 2
    out_hidden_size: int = 4096  # width after the downsample; also the width of the block MLPs
    intermediate_size: int = 13696  # of the merger only
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    def __post_init__(self) -> None:
        _positive("vision_config", self)
        multiple = self.hidden_size % (4 * self.num_heads) == 0  # two axes, two lanes a pair
        check.that("vision_config", "hidden_size", multiple, "a multiple of 4 * num_heads", self.hidden_size)
        whole = self.image_size % self.patch_size == 0
        check.that("vision_config", "image_size", whole, "a multiple of patch_size", self.image_size)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def patch_dim(self) -> int:
        """Floats in one row of `patches`: 3 channels x 2 frames x 14 x 14 = 1176."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2

    @property
    def table_side(self) -> int:
        """Side W of the learned position table [W*W, C]."""
        return self.image_size // self.patch_size


@dataclass(frozen=True)
class TextConfig:
    """The decoder. Defaults: transformers' Glm4vTextConfig with the rope of the published 9B model."""

    vocab_size: int = 151552
    hidden_size: int = 4096
    intermediate_size: int = 13696
    num_hidden_layers: int = 40
    num_attention_heads: int = 32
    num_key_value_heads: int = 2
    max_position_embeddings: int = 32768  # informative: the rope has no table
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    partial_rotary_factor: float = 0.5
    mrope_section: tuple[int, int, int] = (8, 12, 12)  # frequencies of the time, height and width positions

    def __post_init__(self) -> None:
        _positive("text_config", self)
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        check.that(
            "text_config",
            "hidden_size",
            self.hidden_size % heads == 0,
            f"a multiple of {heads} heads",
            self.hidden_size,
        )
        check.that(
            "text_config", "num_key_value_heads", heads % kv_heads == 0, f"a divisor of {heads}", kv_heads
        )
        fits = len(self.mrope_section) == 3 and 2 * sum(self.mrope_section) == self.rotary_dim
        expected = f"3 sections that sum to half of the {self.rotary_dim} rotated lanes"
        check.that("text_config", "mrope_section", fits, expected, self.mrope_section)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    @property
    def rotary_dim(self) -> int:
        """Lanes of a head that are rotated; the others pass through."""
        return int(self.head_dim * self.partial_rotary_factor)


@dataclass(frozen=True)
class Glm4vConfig:
    """A whole model. The token ids are for data and sampling code; the forward pass reads `modality` instead.

    The image id differs between releases (151343 in GLM-4.1V, 151363 in 4.6V-Flash): never hard-code it.
    """

    text: TextConfig = field(default_factory=TextConfig)
    vision: VisionConfig = field(default_factory=VisionConfig)
    image_token_id: int = 151343
    video_token_id: int = 151344
    image_start_token_id: int = 151339
    image_end_token_id: int = 151340
    video_start_token_id: int = 151341
    video_end_token_id: int = 151342
    eos_token_ids: tuple[int, ...] = ()
    pad_token_id: int | None = None

    def __post_init__(self) -> None:
        wide = self.vision.out_hidden_size == self.text.hidden_size
        expected = f"text_config.hidden_size = {self.text.hidden_size}"
        check.that("vision_config", "out_hidden_size", wide, expected, self.vision.out_hidden_size)
        ids = {name: getattr(self, name) for name in _TOKENS} | {"pad_token_id": self.pad_token_id}
        ids |= {f"eos_token_ids[{i}]": token for i, token in enumerate(self.eos_token_ids)}
        for name, token in ids.items():
            known = token is None or 0 <= token < self.text.vocab_size
            check.that("config", name, known, f"in [0, vocab_size={self.text.vocab_size})", token)

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> "Glm4vConfig":
        """From the dict of a config.json (transformers 4 or 5, nested or flat, either form of the rope keys).

        Keys that are absent take transformers' defaults. Raises ValueError that names a key whose value
        would change the maths in a way this model does not implement.
        """
        check.that("config", "model_type", "model_type" in hf, "present", None)
        _only(hf, "", _TOP_ONLY)
        text, vision = hf.get("text_config", hf), hf.get("vision_config", {})
        _only(text, "text_config.", _TEXT_ONLY)
        _only(vision, "vision_config.", _VISION_ONLY)
        ids = {name: hf[name] for name in _TOKENS if name in hf}
        eos = hf.get("eos_token_id", text.get("eos_token_id"))
        eos_ids = () if eos is None else (eos,) if isinstance(eos, int) else tuple(eos)
        pad = hf.get("pad_token_id", text.get("pad_token_id"))
        return cls(text=_text(text), vision=_vision(vision), eos_token_ids=eos_ids, pad_token_id=pad, **ids)

    def to_hf(self) -> dict[str, Any]:
        """The dict of a config.json that transformers and vLLM load; `from_hf` is its inverse."""
        ids = {name: getattr(self, name) for name in _TOKENS}
        text = {name: getattr(self.text, name) for name in _TEXT_SIZES}
        # The rope keys of transformers 4, as the published checkpoints have them: both 4 and 5 read these.
        text |= {"rope_scaling": {"rope_type": "default", "mrope_section": list(self.text.mrope_section)}}
        # vLLM loads the q, k, v biases only where attention_bias says so; transformers always has them.
        text |= {"model_type": "glm4v_text", "hidden_act": "silu", "attention_bias": True}
        text |= {"eos_token_id": list(self.eos_token_ids) or None, "pad_token_id": self.pad_token_id}
        vision = {name: getattr(self.vision, name) for name in _VISION_SIZES}
        vision |= {"model_type": "glm4v_vision", "hidden_act": "silu", "attention_bias": False}
        top = {"architectures": ["Glm4vForConditionalGeneration"], "model_type": "glm4v"}
        return {**top, **ids, "tie_word_embeddings": False, "text_config": text, "vision_config": vision}


def preset(
    name: str, *, vocab_size: int | None = None, token_id: Callable[[str], int] | None = None
) -> Glm4vConfig:
    """The sizes called "tiny" (1.2 M parameters, learns on two CPU cores) or "glm-4.1v-9b" (as published).

    `vocab_size` and `token_id` (special token -> id, as `Tokenizer.id`) fit the preset to a tokenizer.
    """
    check.choice("preset", "name", name, tuple(_PRESETS))
    config = _PRESETS[name]()
    changes: dict[str, Any] = {}
    if vocab_size is not None:
        changes["text"] = replace(config.text, vocab_size=vocab_size)
    if token_id is not None:
        changes |= {key: token_id(token) for key, token in _TOKENS.items()}
        changes["eos_token_ids"] = (token_id("<|endoftext|>"), token_id("<|user|>"))
        changes["pad_token_id"] = token_id("<|endoftext|>")
    return replace(config, **changes)


def _tiny() -> Glm4vConfig:
    # One 84 x 84 image is 6 x 6 patches: the table is used without resampling. The decoder's theta is 100
    # because its positions stay below 100: with 10000 most of the 8 frequencies would hardly turn. The tower
    # keeps the published 10000: vLLM computes with that whatever the file says, and it learns as well.
    vision = VisionConfig(
        depth=3,
        hidden_size=96,
        num_heads=3,
        image_size=84,
        out_hidden_size=128,
        intermediate_size=256,
    )
    text = TextConfig(
        vocab_size=128,
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=2048,
        rope_theta=100.0,
        mrope_section=(2, 3, 3),
    )
    ids = {name: i for i, name in enumerate(_TOKENS, start=2)}
    return Glm4vConfig(text=text, vision=vision, eos_token_ids=(0, 1), pad_token_id=0, **ids)


def _glm_41v_9b() -> Glm4vConfig:
    text = TextConfig(max_position_embeddings=65536)
    return Glm4vConfig(text=text, eos_token_ids=(151329, 151336, 151338, 151348), pad_token_id=151329)


_PRESETS = {"tiny": _tiny, "glm-4.1v-9b": _glm_41v_9b}

_TOKENS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
    "video_start_token_id": "<|begin_of_video|>",
    "video_end_token_id": "<|end_of_video|>",
}
_TEXT_SIZES = tuple(f.name for f in fields(TextConfig) if f.name != "mrope_section")
_VISION_SIZES = tuple(f.name for f in fields(VisionConfig))

# Keys that change the maths -> the values that this model implements.
_TOP_ONLY = {"model_type": ("glm4v",), "tie_word_embeddings": (False,), "quantization_config": (None,)}
_TEXT_ONLY = {
    "model_type": ("glm4v_text", "glm4v"),
    "hidden_act": ("silu",),
    "attention_bias": (True, None),  # q, k, v have a bias, o has none
    "attention_dropout": (0, 0.0),
    "tie_word_embeddings": (False,),
    "use_qk_norm": (False,),
}
_VISION_ONLY = {
    "model_type": ("glm4v_vision", "glm4v"),
    "hidden_act": ("silu",),
    "attention_bias": (False,),
    "attention_dropout": (0, 0.0),
}


def _text(hf: Mapping[str, Any]) -> TextConfig:
    sizes = {name: hf[name] for name in _TEXT_SIZES if name in hf}
    if sizes.get("num_key_value_heads", 0) is None:
        sizes["num_key_value_heads"] = sizes.get("num_attention_heads", TextConfig.num_attention_heads)
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    _only({"rope_type": _rope_type(rope)}, "text_config.", {"rope_type": ("default",)})
    sizes["rope_theta"] = float(rope.get("rope_theta", hf.get("rope_theta", TextConfig.rope_theta)))
    # Without the key transformers rotates the whole head.
    sizes["partial_rotary_factor"] = rope.get("partial_rotary_factor", hf.get("partial_rotary_factor", 1.0))
    sizes["mrope_section"] = tuple(rope.get("mrope_section", TextConfig.mrope_section))
    config = TextConfig(**sizes)
    # transformers' attention takes hidden_size / heads whatever this key says.
    _only(hf, "text_config.", {"head_dim": (config.head_dim, None)})
    return config


def _vision(hf: Mapping[str, Any]) -> VisionConfig:
    sizes = {name: _one_side(name, hf[name]) for name in _VISION_SIZES if name in hf}
    rope = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    _only({"rope_type": _rope_type(rope)}, "vision_config.", {"rope_type": ("axial", "default")})
    sizes["rope_theta"] = float(rope.get("rope_theta", hf.get("rope_theta", VisionConfig.rope_theta)))
    return VisionConfig(**sizes)


def _rope_type(rope: Mapping[str, Any]) -> Any:
    return rope.get("rope_type", rope.get("type", "default"))


def _one_side(name: str, value: Any) -> Any:
    """The side of a square that transformers also accepts as [side, side]."""
    if not isinstance(value, list | tuple):
        return value
    check.that("config", f"vision_config.{name}", len(set(value)) == 1, "a number or equal sides", value)
    return value[0]


def _only(hf: Mapping[str, Any], prefix: str, allowed: Mapping[str, tuple[Any, ...]]) -> None:
    for key, values in allowed.items():
        if key in hf and hf[key] not in values:
            expected = " or ".join(map(repr, values))
            check.that("config", prefix + key, False, f"{expected}: nothing else is implemented", hf[key])


def _positive(name: str, config: VisionConfig | TextConfig) -> None:
    for f in fields(config):
        value = getattr(config, f.name)
        if not isinstance(value, tuple):
            check.that(name, f.name, value > 0, "positive", value)
