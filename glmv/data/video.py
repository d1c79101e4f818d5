"""Clips to patch rows and times: which frames GLM-4.1V looks at, and the second it is told for each pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from glmv.data.image import Floats, ImageConfig, patchify, read_processor_json, resize, smart_resize


@dataclass(frozen=True)
class VideoConfig:
    """Frame sampling and size budget (pixels x frames) of a clip; the rest is in ImageConfig."""

    fps: float = 2.0
    max_duration_s: float = 300.0
    min_pixels: int = 112 * 112
    max_pixels: int = 28 * 28 * 2 * 30000

    @classmethod
    def load(cls, directory: str | Path) -> "VideoConfig":
        """Read video_preprocessor_config.json or processor_config.json; the defaults where there is none."""
        raw = read_processor_json(directory, "video_preprocessor_config.json", "video_processor") or {}
        size = raw.get("size", {})
        return cls(
            fps=raw.get("fps", cls.fps),
            max_duration_s=raw.get("max_duration", cls.max_duration_s),
            min_pixels=size.get("shortest_edge", cls.min_pixels),
            max_pixels=size.get("longest_edge", cls.max_pixels),
        )

    def to_hf(self, image: ImageConfig) -> dict[str, Any]:
        """The content of video_preprocessor_config.json."""
        return {
            "video_processor_type": "Glm4vVideoProcessor",
            "processor_class": "Glm4vProcessor",
            "size": {"shortest_edge": self.min_pixels, "longest_edge": self.max_pixels},
            "max_image_size": {"longest_edge": self.max_pixels},
            "do_sample_frames": True,
            "fps": self.fps,
            "max_duration": self.max_duration_s,
            **image.shared_hf(),
        }


TINY_VIDEO = VideoConfig(min_pixels=2 * 28 * 28)


def sample_frames(total: int, fps: float, config: VideoConfig) -> list[int]:
    """Indices of the frames to look at, an even number, of a clip of `total` frames taken at `fps`.

    `config.fps` frames a second; clips longer than `max_duration_s` get as many frames as one of that length,
    evenly spread. The last index is repeated to make the number even.
    """
    if total < 1 or not 0 < fps < math.inf:
        raise ValueError(
            f"a clip must have frames and a positive rate, got {total} frames at {fps} per second"
        )
    last = total - 1
    duration = round(last / fps) + 1
    if duration <= config.max_duration_s:
        count = max(math.floor(duration * config.fps), 1)
        indices = [min(last, math.ceil(i * fps / config.fps)) for i in range(count)]
    else:
        count = int(config.max_duration_s * config.fps)
        seconds = np.linspace(0, duration, count).tolist()
        indices = list(range(total)) if count >= total else [min(last, math.ceil(s * fps)) for s in seconds]
    unique = list(dict.fromkeys(indices))
    return unique + unique[-1:] * (len(unique) % 2)


def pair_seconds(indices: Sequence[int], fps: float, pair: int) -> tuple[float, ...]:
    """The second of the first frame of each pair."""
    return tuple(i / fps for i in indices[::pair])


def clip_patches(
    frames: Sequence[Image.Image], image: ImageConfig, config: VideoConfig
) -> tuple[Floats, tuple[int, int, int]]:
    """Patch rows [P, 1176] of RGB frames of one size, and the grid (frame pairs, h, w) in patches.

    The last frame is repeated to fill a pair. Raises ValueError if the frames differ in size.
    """
    sizes = {frame.size for frame in frames}
    if len(sizes) != 1:
        raise ValueError(f"the frames of a clip must have one size, got {sorted(sizes)}")
    width, height = sizes.pop()
    count, pair = len(frames), image.temporal_patch_size
    if count < pair:
        raise ValueError(f"a clip must have at least {pair} frames, got {count}")
    h, w = smart_resize(count, height, width, image, config.min_pixels, config.max_pixels)
    pixels = [resize(frame, h, w) for frame in frames]
    pixels += pixels[-1:] * (-count % pair)
    return patchify(np.stack(pixels), image)
