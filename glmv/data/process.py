"""A sample becomes a prompt: images and clips to patches, chat to token ids, positions."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glmv import check
from glmv.data import template
from glmv.data.image import TINY_IMAGE, Floats, ImageConfig, image_patches, open_image
from glmv.data.positions import frame_sizes, rope_positions
from glmv.data.tokenizer import Tokenizer, tiny_tokenizer
from glmv.data.types import IMAGE, Prompt, Sample
from glmv.data.video import TINY_VIDEO, VideoConfig, clip_patches, pair_seconds, sample_frames

FORMATS = ("glm-4.1v",)


@dataclass(frozen=True)
class Visual:
    """One image or one clip, ready for the model."""

    patches: Floats  # [P, 1176]
    grid: tuple[int, int, int]  # (t, h, w) in patches
    seconds: tuple[float, ...] = ()  # of each frame pair of a clip


@dataclass(frozen=True)
class Processor:
    """Tokenizer, image and video settings and chat format of a model. Threads may share it."""

    tokenizer: Tokenizer
    image: ImageConfig
    video: VideoConfig = field(default_factory=VideoConfig)
    format: str = "glm-4.1v"

    def __post_init__(self) -> None:
        check.choice("Processor", "format", self.format, FORMATS)
        for token in (*template.STOP_TOKENS, template.IMAGE_TOKEN, *template.MARKER_TOKENS):
            self.tokenizer.id(
                token
            )  # a tokenizer without GLM's tokens fails here, not in the middle of a run

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids that end an answer."""
        return tuple(self.tokenizer.id(token) for token in template.STOP_TOKENS)

    def prompt(self, sample: Sample, root: str | Path) -> Prompt:
        """What the model reads before it answers `sample`. `images` and frames are paths relative to `root`.

        Raises ValueError, which names the sample, for an image that cannot be read, a word the tokenizer
        lacks, or placeholders that do not match the images and videos.
        """
        try:
            return self._prompt(sample, Path(root))
        except ValueError as error:
            raise ValueError(f"sample {sample.id}: {error}") from error

    def _prompt(self, sample: Sample, root: Path) -> Prompt:
        images = [Visual(*image_patches(open_image(path, root), self.image)) for path in sample.images]
        clips = [self._clip(video["frames"], float(video["fps"]), root) for video in sample.videos]
        rendered = template.render(sample.prompt, len(images), [clip.seconds for clip in clips])
        visuals = [(images if kind == IMAGE else clips)[i] for kind, i in rendered.media]
        grid = torch.tensor([v.grid for v in visuals], dtype=torch.int64).reshape(-1, 3)
        kinds = [kind for (kind, _), v in zip(rendered.media, visuals, strict=True) for _ in range(v.grid[0])]
        tokens, modality = self._expand(
            rendered.text, frame_sizes(grid, self.image.merge_size).prod(1), kinds
        )
        pos, next_pos = rope_positions(modality, grid, self.image.merge_size)
        return Prompt(sample, tokens, pos, modality, self._join(visuals), grid, next_pos)

    def _clip(self, frames: list[str], fps: float, root: Path) -> Visual:
        indices = sample_frames(len(frames), fps, self.video)
        pictures = {i: open_image(frames[i], root) for i in set(indices)}
        patches, grid = clip_patches([pictures[i] for i in indices], self.image, self.video)
        return Visual(patches, grid, pair_seconds(indices, fps, self.image.temporal_patch_size))

    def _expand(self, text: str, counts: np.ndarray, kinds: list[int]) -> tuple[Tensor, Tensor]:
        """Ids [T] and modality [T] of a chat whose k-th <|image|> stands for `counts[k]` of `kinds[k]`."""
        ids = np.array(self.tokenizer.encode(text), dtype=np.int64)
        holders = np.flatnonzero(ids == self.tokenizer.id(template.IMAGE_TOKEN))
        repeats = np.ones(len(ids), dtype=np.int64)
        repeats[holders] = counts
        modality = np.zeros(len(ids), dtype=np.int8)
        modality[holders] = kinds
        return torch.from_numpy(ids.repeat(repeats)), torch.from_numpy(modality.repeat(repeats))

    def _join(self, visuals: list[Visual]) -> Tensor:
        if len(visuals) == 1:
            return torch.from_numpy(visuals[0].patches)
        width = 3 * self.image.temporal_patch_size * self.image.patch_size**2
        nothing = np.empty((0, width), np.float32)
        return torch.from_numpy(np.concatenate([nothing, *(v.patches for v in visuals)]))

    def response_tokens(self, text: str) -> Tensor:
        """[n] int64: the ids of an answer and the end token.

        Raises ValueError if the text holds a token that an answer cannot have (an image, a role), or a word
        that the tokenizer does not know.
        """
        found = template.find_control_token(text)
        if found is not None:
            raise ValueError(f"the response holds the control token {found!r}")
        return torch.tensor([*self.tokenizer.encode(text), self.tokenizer.id(template.END_TOKEN)])

    @classmethod
    def load(cls, directory: str | Path) -> "Processor":
        """Read a processor from a checkpoint directory in Hugging Face's layout."""
        return cls(Tokenizer.load(directory), ImageConfig.load(directory), VideoConfig.load(directory))

    def save(self, directory: str | Path) -> None:
        """Write tokenizer, preprocessor_config.json and video_preprocessor_config.json."""
        path = Path(directory)
        self.tokenizer.save(path)
        files = {
            "preprocessor_config.json": self.image.to_hf(),
            "video_preprocessor_config.json": self.video.to_hf(self.image),
        }
        for name, content in files.items():
            (path / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def tiny_processor() -> Processor:
    """The processor of the tiny model: word-level tokenizer, images and frames of a few cells."""
    return Processor(tiny_tokenizer(), TINY_IMAGE, TINY_VIDEO)
