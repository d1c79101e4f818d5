"""Shapes of the GLM-V models: the benchmarks time them, the tests use the same ones with fewer tokens."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rope:
    """A rotary layout: `sections` = lanes of each axis; `restart`: frequencies begin anew on each axis."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    sections: tuple[int, ...]
    pairing: str
    restart: bool = False
    theta: float = 10000.0

    def tables(self) -> tuple[Tensor, Tensor]:
        """inv_freq [R/2] float32 and axis_of_lane [R/2] int32."""
        lanes = sum(self.sections)
        axis = torch.repeat_interleave(torch.arange(len(self.sections)), torch.tensor(self.sections))
        index = torch.cat([torch.arange(n) for n in self.sections]) if self.restart else torch.arange(lanes)
        period = self.sections[0] if self.restart else lanes
        inv_freq = self.theta ** (-index.double() / period)
        return inv_freq.float(), axis.int()

    def positions(self, tokens: int) -> Tensor:
        """pos [A, T] int32: text for the first quarter, then one image row by row."""
        text, axes = tokens // 4, len(self.sections)
        pos = torch.arange(tokens).repeat(axes, 1)
        side = max(int((tokens - text) ** 0.5), 1)
        cell = torch.arange(tokens - text)
        image = torch.stack((torch.zeros_like(cell), cell // side, cell % side))[-axes:]
        pos[:, text:] = text + image
        return pos.int()


ROPE = {
    "glm-4.1v text": Rope(32, 2, 128, (8, 12, 12), "adjacent"),
    "glm-4.5v text": Rope(96, 8, 128, (8, 12, 12), "half"),
    "glm-v vision": Rope(12, 12, 128, (32, 32), "half", restart=True),
    "tiny text": Rope(4, 1, 32, (2, 3, 3), "adjacent", theta=100.0),
}


@dataclass(frozen=True)
class Attention:
    """Heads of one attention layer; `causal` for text, one segment a frame for the vision tower."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool


ATTENTION = {
    "glm-4.1v text": Attention(32, 2, 128, causal=True),
    "glm-4.5v text": Attention(96, 8, 128, causal=True),
    "glm-v vision": Attention(12, 12, 128, causal=False),
}


@dataclass(frozen=True)
class Moe:
    """Router and experts of one layer."""

    num_experts: int
    top_k: int
    hidden: int
    intermediate: int


MOE = {"glm-4.5v": Moe(128, 8, 4096, 1408), "small": Moe(32, 8, 256, 192)}

TABLE_SIDE = 24  # of the learned position table of every GLM-V vision tower
VISION_WIDTH = 1536
