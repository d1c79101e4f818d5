"""Small random models and batches; weights and positions come from transformers, the independent truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Glm4vConfig as HFConfig
from transformers import Glm4vForConditionalGeneration

from glmv.data.types import IMAGE, TEXT, VIDEO, PackedBatch

IMAGE_TOKEN, BEGIN_IMAGE, END_IMAGE, BEGIN_VIDEO, END_VIDEO = 500, 502, 503, 504, 505
PATCH_DIM = 1176
Part = int | tuple[int, int] | tuple[int, int, int]  # n text tokens | image (h, w) | video (t, h, w)


def hf_config() -> HFConfig:
    rope = {
        "rope_type": "default",
        "rope_theta": 1e4,
        "partial_rotary_factor": 0.5,
        "mrope_section": [2, 3, 3],
    }
    text = {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rope_parameters": rope,
        "initializer_range": 0.08,  # logits of size 1
    }
    vision = {
        "depth": 2,
        "hidden_size": 64,
        "num_heads": 4,
        "image_size": 84,
        "out_hidden_size": 128,
        "intermediate_size": 96,
        "initializer_range": 0.08,
    }
    return HFConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=IMAGE_TOKEN,
        video_token_id=501,
        image_start_token_id=BEGIN_IMAGE,
        image_end_token_id=END_IMAGE,
        video_start_token_id=BEGIN_VIDEO,
        video_end_token_id=END_VIDEO,
    )


def hf_model(seed: int = 0) -> Glm4vForConditionalGeneration:
    """A random model. Vectors are random too: norms of one and biases of zero would hide mistakes."""
    torch.manual_seed(seed)
    model = Glm4vForConditionalGeneration._from_config(hf_config(), attn_implementation="eager")
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.add_(torch.randn_like(p) * 0.2)
    return model.eval()


@dataclass(frozen=True)
class Example:
    tokens: Tensor  # [T] int64
    modality: Tensor  # [T] int8
    patches: Tensor  # [P, 1176]
    grid: Tensor  # [N, 3]
    kind: Tensor  # [N]: IMAGE or VIDEO

    def hf_inputs(self) -> dict[str, Tensor]:
        """Arguments of transformers' forward for a sample without both images and videos."""
        inputs = {"input_ids": self.tokens[None], "mm_token_type_ids": self.modality[None].int()}
        if (self.kind == IMAGE).any():
            inputs |= {"pixel_values": self.patches, "image_grid_thw": self.grid}
        if (self.kind == VIDEO).any():
            inputs |= {"pixel_values_videos": self.patches, "video_grid_thw": self.grid}
        return inputs

    def positions(self, hf: Glm4vForConditionalGeneration) -> Tensor:
        """[3, T] int32 by transformers' get_rope_index."""
        grids = {
            k: self.grid[self.kind == v] for k, v in (("image_grid_thw", IMAGE), ("video_grid_thw", VIDEO))
        }
        grids = {name: grid for name, grid in grids.items() if len(grid)}
        types = self.modality[None].int()
        return hf.model.get_rope_index(self.tokens[None], mm_token_type_ids=types, **grids)[0][:, 0].int()


def example(parts: Sequence[Part], seed: int = 0) -> Example:
    """Tokens as the processor lays them out: a video is an image per frame, a time stamp after each."""
    g = torch.Generator().manual_seed(seed)
    tokens: list[int] = []
    modality: list[int] = []
    grid: list[tuple[int, int, int]] = []
    kind: list[int] = []

    def text(*ids: int) -> None:
        tokens.extend(ids)
        modality.extend([TEXT] * len(ids))

    def frame(h: int, w: int, of: int) -> None:
        text(BEGIN_IMAGE)
        tokens.extend([IMAGE_TOKEN] * (h * w // 4))
        modality.extend([of] * (h * w // 4))
        text(END_IMAGE)

    for part in parts:
        if isinstance(part, int):
            text(*torch.randint(10, 490, (part,), generator=g).tolist())
        elif len(part) == 2:
            grid.append((1, *part))
            kind.append(IMAGE)
            frame(*part, IMAGE)
        else:
            grid.append(part)
            kind.append(VIDEO)
            text(BEGIN_VIDEO)
            for second in range(part[0]):
                frame(*part[1:], VIDEO)
                text(10 + second)
            text(END_VIDEO)
    num_patches = sum(t * h * w for t, h, w in grid)
    patches = torch.randn(num_patches, PATCH_DIM, generator=g)
    sizes = torch.tensor(grid, dtype=torch.int64).view(-1, 3)
    return Example(
        torch.tensor(tokens), torch.tensor(modality, dtype=torch.int8), patches, sizes, torch.tensor(kind)
    )


def batch_of(examples: Sequence[Example], hf: Glm4vForConditionalGeneration) -> PackedBatch:
    """The examples one after the other, with positions that restart."""
    lengths = [len(e.tokens) for e in examples]
    grid = torch.cat([e.grid for e in examples])
    per_frame = (grid[:, 1] * grid[:, 2]).repeat_interleave(grid[:, 0])
    modality = torch.cat([e.modality for e in examples])
    return PackedBatch(
        tokens=torch.cat([e.tokens for e in examples]),
        pos=torch.cat([e.positions(hf) for e in examples], 1),
        cu_seqlens=bounds(torch.tensor(lengths)),
        max_seqlen=max(lengths),
        modality=modality,
        patches=torch.cat([e.patches for e in examples]),
        grid=grid,
        vis_cu_seqlens=bounds(per_frame),
        visual_index=torch.arange(int((modality > 0).sum())),
        rows=torch.empty(0, dtype=torch.int64),
        labels=torch.empty(0, dtype=torch.int64),
        loss_cu_seqlens=torch.zeros(len(examples) + 1, dtype=torch.int32),
        logp_old=None,
        adv=torch.zeros(len(examples)),
        weight=None,
        sample_id=tuple(map(str, range(len(examples)))),
    )


def text_batch(tokens: Sequence[Sequence[int]], pos: Sequence[Sequence[int]]) -> PackedBatch:
    """Text segments at given positions, the same on all three axes: what decoding feeds."""
    flat = torch.tensor([t for segment in tokens for t in segment])
    at = torch.tensor([p for segment in pos for p in segment], dtype=torch.int32)
    lengths = [len(segment) for segment in tokens]
    return PackedBatch(
        tokens=flat,
        pos=at.expand(3, -1),
        cu_seqlens=bounds(torch.tensor(lengths)),
        max_seqlen=max(lengths),
        modality=torch.zeros(len(flat), dtype=torch.int8),
        patches=torch.empty(0, PATCH_DIM),
        grid=torch.empty(0, 3, dtype=torch.int64),
        vis_cu_seqlens=torch.zeros(1, dtype=torch.int32),
        visual_index=torch.empty(0, dtype=torch.int64),
        rows=torch.empty(0, dtype=torch.int64),
        labels=torch.empty(0, dtype=torch.int64),
        loss_cu_seqlens=torch.zeros(len(lengths) + 1, dtype=torch.int32),
        logp_old=None,
        adv=torch.zeros(len(lengths)),
        weight=None,
        sample_id=tuple(map(str, range(len(lengths)))),
    )


def bounds(lengths: Tensor) -> Tensor:
    return torch.cat((torch.zeros(1, dtype=torch.int64), lengths.cumsum(0))).int()
