"""Images and frames to patch rows, without torchvision.

Patch row [1176]: (channel 3, frame of the pair 2, y 14, x 14). Rows of an image stand block by block: 2 x 2
patches that the model merges into one token are neighbours. Row order: (t, block y, block x, y in block, x
in block).
"""

import base64
import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
MAX_ASPECT = 200


@dataclass(frozen=True)
class ImageConfig:
    """How an image becomes patches.

    The budgets are in pixels x frames, and an image counts as `temporal_patch_size` frames.
    The defaults are those of the published GLM-4.1V checkpoints.
    """

    patch_size: int = 14
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_pixels: int = 112 * 112
    max_pixels: int = 14 * 14 * 2 * 2 * 2 * 6144
    mean: tuple[float, float, float] = CLIP_MEAN
    std: tuple[float, float, float] = CLIP_STD

    @property
    def factor(self) -> int:
        """Side of a merged patch in pixels; both sides of an image become multiples of it."""
        return self.patch_size * self.merge_size

    @classmethod
    def load(cls, directory: str | Path) -> "ImageConfig":
        """Read preprocessor_config.json, or the part of processor_config.json that transformers 5 writes."""
        raw = read_processor_json(directory, "preprocessor_config.json", "image_processor")
        if raw is None:
            raise ValueError(f"{directory} has neither preprocessor_config.json nor an image_processor entry")
        size = raw.get("size", {})
        return cls(
            patch_size=raw.get("patch_size", cls.patch_size),
            merge_size=raw.get("merge_size", cls.merge_size),
            temporal_patch_size=raw.get("temporal_patch_size", cls.temporal_patch_size),
            min_pixels=size.get("shortest_edge", cls.min_pixels),
            max_pixels=size.get("longest_edge", cls.max_pixels),
            mean=tuple(raw.get("image_mean", cls.mean)),
            std=tuple(raw.get("image_std", cls.std)),
        )

    def to_hf(self) -> dict[str, Any]:
        """The content of preprocessor_config.json."""
        return {
            "image_processor_type": "Glm4vImageProcessor",
            "processor_class": "Glm4vProcessor",
            "size": {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            **self.shared_hf(),
        }

    def shared_hf(self) -> dict[str, Any]:
        """The keys that the image and the video file have in common."""
        return {
            "patch_size": self.patch_size,
            "merge_size": self.merge_size,
            "temporal_patch_size": self.temporal_patch_size,
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": list(self.mean),
            "image_std": list(self.std),
        }


# 84 x 84 images and 56 x 56 frames keep their size; white becomes exactly 0, so that an empty canvas is
# silent.
TINY_IMAGE = ImageConfig(min_pixels=2 * 28 * 28, mean=(1.0, 1.0, 1.0), std=(64 / 255, 64 / 255, 64 / 255))


def read_processor_json(directory: str | Path, name: str, key: str) -> Mapping[str, Any] | None:
    """The settings in `name`, or under `key` of processor_config.json, or None."""
    own, joint = Path(directory) / name, Path(directory) / "processor_config.json"
    if joint.is_file():
        settings = json.loads(joint.read_text(encoding="utf-8"))
        if key in settings:
            nested: Mapping[str, Any] = settings[key]
            return nested
    if own.is_file():
        alone: Mapping[str, Any] = json.loads(own.read_text(encoding="utf-8"))
        return alone
    return None


def smart_resize(
    frames: int, height: int, width: int, config: ImageConfig, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """The (height, width) that an image or a clip is resized to: multiples of `factor` inside the budget.

    Raises ValueError for an empty image or one longer than 200 times its width.
    """
    factor, pair = config.factor, config.temporal_patch_size
    if min(height, width) < 1:
        raise ValueError(f"an image must have at least one pixel, got {height} x {width}")
    if height < factor or width < factor:
        scale = max(factor / height, factor / width)
        height, width = int(height * scale), int(width * scale)
    if max(height, width) / min(height, width) > MAX_ASPECT:
        raise ValueError(
            f"an image must not be longer than {MAX_ASPECT} times its width, got {height} x {width}"
        )
    h, w = round(height / factor) * factor, round(width / factor) * factor
    volume = round(frames / pair) * pair * h * w
    if volume > max_pixels:
        beta = math.sqrt(frames * height * width / max_pixels)
        h = max(factor, math.floor(height / beta / factor) * factor)
        w = max(factor, math.floor(width / beta / factor) * factor)
    elif volume < min_pixels:
        beta = math.sqrt(min_pixels / (frames * height * width))
        h = math.ceil(height * beta / factor) * factor
        w = math.ceil(width * beta / factor) * factor
    return h, w


def open_image(reference: str, root: Path) -> Image.Image:
    """Load an image as upright RGB; transparency goes onto white.

    `reference` is a path relative to `root`, an absolute path, a file:// address, or a `data:` URI.
    Raises ValueError if it cannot be read.
    """
    try:
        if reference.startswith("data:"):
            source: io.BytesIO | Path = io.BytesIO(base64.b64decode(reference.partition(",")[2]))
        else:
            source = root / reference.removeprefix("file://")
        with Image.open(source) as image:
            upright = ImageOps.exif_transpose(image) if image.format != "PNG" else image
            return _to_rgb(upright)
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"image {reference[:200]} cannot be read: {error}") from error


def _to_rgb(image: Image.Image) -> Image.Image:
    if "A" in image.getbands() or "transparency" in image.info:
        canvas = Image.new("RGBA", image.size, (255, 255, 255, 255))
        canvas.alpha_composite(image.convert("RGBA"))
        return canvas.convert("RGB")
    return image.convert("RGB")


def image_patches(image: Image.Image, config: ImageConfig) -> tuple[Floats, tuple[int, int, int]]:
    """Patch rows [P, 1176] of an RGB image (twice the same frame) and its grid (1, h, w) in patches."""
    frames = config.temporal_patch_size
    h, w = smart_resize(frames, image.height, image.width, config, config.min_pixels, config.max_pixels)
    pixels = resize(image, h, w)[None]
    return patchify(np.broadcast_to(pixels, (frames, *pixels.shape[1:])), config)


def resize(image: Image.Image, height: int, width: int) -> Bytes:
    """The [height, width, 3] bytes of an RGB image, resized bicubically where the size differs."""
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(image)


def patchify(frames: Bytes, config: ImageConfig) -> tuple[Floats, tuple[int, int, int]]:
    """Normalised patch rows [P, C * pair * p * p] of frames [T, H, W, 3], and their grid (t, h, w).

    T must be a multiple of the frames of a pair, H and W of `config.factor`.
    """
    p, m, pair = config.patch_size, config.merge_size, config.temporal_patch_size
    t, h, w = frames.shape[0] // pair, frames.shape[1] // p, frames.shape[2] // p
    blocks = frames.reshape(t, pair, h // m, m, p, w // m, m, p, 3)
    # -> (t, block y, block x, y in block, x in block, C, frame of the pair, y, x)
    rows = np.ascontiguousarray(blocks.transpose(0, 2, 5, 3, 6, 8, 1, 4, 7)).reshape(
        t * h * w, 3, pair * p * p
    )
    # 256 possible bytes: exact arithmetic in double precision once per byte, then a look-up.
    levels = np.arange(256) / 255
    out = np.empty(rows.shape, np.float32)
    for c in range(3):
        table = ((levels - config.mean[c]) / config.std[c]).astype(np.float32)
        out[:, c] = table[rows[:, c]]
    return out.reshape(t * h * w, 3 * pair * p * p), (t, h, w)
