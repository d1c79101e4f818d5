"""The vision tower of GLM-4.1V: patches -> one feature row for each 2 x 2 block of patches.

    patches [P, 1176] -> linear -> RMSNorm -> + bicubic position table -> blocks -> RMSNorm
                      -> linear over 4 consecutive rows (downsample) -> merger -> [P/4, C]

Rows come in merge-block order (t, block_y, block_x, in-block y, in-block x). Attention stays within a frame.
transformers computes the two linears as Conv3d and Conv2d with stride = kernel: the same sums, 3x and 12x
slower on a CPU.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glmv import check, ops
from glmv.model.config import VisionConfig
from glmv.model.layers import RMSNorm, Rope


class VisionTower(nn.Module):
    """`model.visual` of a checkpoint."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = PatchEmbed(config)
        self.post_conv_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.embeddings = PositionTable(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.post_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        window = (config.spatial_merge_size, config.spatial_merge_size)
        self.downsample = WindowLinear(
            config.hidden_size, config.out_hidden_size, window, channels_first=False
        )
        self.merger = Merger(config.out_hidden_size, config.intermediate_size)
        # A quarter of the head dimension for each of y and x; both axes start at frequency 1.
        quarter = config.head_dim // 4
        lanes = [(axis, i) for axis in (0, 1) for i in range(quarter)]
        self.rope = Rope(config.rope_theta, 2 * quarter, lanes, "half")

    def forward(self, patches: Tensor, grid: Tensor, cu_seqlens: Tensor) -> Tensor:
        """patches [P, patch_dim] float, grid [N, 3] int64 on the CPU, cu_seqlens [F+1] int32 -> [P/4, C].

        Raises ValueError or TypeError if the three do not fit together.
        """
        self._check(patches, grid, cu_seqlens)
        merge = self.config.spatial_merge_size
        x = self.post_conv_layernorm(self.patch_embed(patches))
        x = ops.pos_embed(self.embeddings.position_embedding.weight, grid, add_to=x, merge=merge)
        pos = patch_positions(grid, merge).to(x.device, non_blocking=True)
        longest = int((grid[:, 1] * grid[:, 2]).max())
        for block in self.blocks:
            x = block(x, self.rope, pos, cu_seqlens, longest)
        blocks = self.post_layernorm(x).view(-1, self.downsample.in_features)
        features: Tensor = self.merger(self.downsample(blocks))
        return features

    def _check(self, patches: Tensor, grid: Tensor, cu_seqlens: Tensor) -> None:
        check.tensor("Glm4v", "grid", grid, ("N", 3), check.INDEX, torch.device("cpu"))
        merge = self.config.spatial_merge_size
        ragged = [g for g in grid.tolist() if min(g) < 1 or g[1] % merge or g[2] % merge]
        expected = f"(t, h, w) >= 1 with h and w multiples of {merge}"
        check.that("Glm4v", "grid", not ragged, expected, ragged[0] if ragged else None)
        total, frames = int(grid.prod(1).sum()), int(grid[:, 0].sum())
        shape = (f"patches of grid={total}", self.config.patch_dim)
        device = self.downsample.weight.device
        check.tensor("Glm4v", "patches", patches, shape, check.FLOAT, device)
        bounds = (f"frames of grid + 1={frames + 1}",)
        check.tensor("Glm4v", "vis_cu_seqlens", cu_seqlens, bounds, (torch.int32,), device)


class PatchEmbed(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        window = (config.temporal_patch_size, config.patch_size, config.patch_size)
        self.proj = WindowLinear(config.in_channels, config.hidden_size, window, channels_first=True)

    def forward(self, patches: Tensor) -> Tensor:
        y: Tensor = self.proj(patches.to(self.proj.weight.dtype))
        return y


class WindowLinear(nn.Linear):
    """A convolution whose stride is its kernel, as the linear map of one window that it is.

    The weight is a matrix, for the GEMM and for optimizers that treat matrices apart (Muon). In state dicts
    it has the shape of the convolution, [out, in, *window], as checkpoints have it.
    """

    def __init__(self, channels: int, out: int, window: tuple[int, ...], *, channels_first: bool) -> None:
        super().__init__(channels * math.prod(window), out)
        self.conv_shape = (out, channels, *window)
        self.channels_first = (
            channels_first  # order of the inputs in a row: (channel, *window) or (*window, channel)
        )

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        weight, (out, channels, *window) = destination[prefix + "weight"], self.conv_shape
        if self.channels_first:
            destination[prefix + "weight"] = weight.view(self.conv_shape)
        else:
            destination[prefix + "weight"] = weight.view(out, *window, channels).movedim(-1, 1)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        weight = state_dict.get(prefix + "weight")
        if weight is not None and tuple(weight.shape) == self.conv_shape:
            rows = weight if self.channels_first else weight.movedim(1, -1)
            state_dict[prefix + "weight"] = rows.flatten(1)
        super()._load_from_state_dict(state_dict, prefix, *args)


class PositionTable(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.position_embedding = nn.Embedding(config.table_side**2, config.hidden_size)


class Block(nn.Module):
    """Pre-norm: x += attention(norm1 x); x += mlp(norm2 x)."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.norm1 = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.norm2 = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config)
        self.mlp = GatedMLP(config.hidden_size, config.out_hidden_size)

    def forward(self, x: Tensor, rope: Rope, pos: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
        x = x + self.attn(self.norm1(x), rope, pos, cu_seqlens, max_seqlen)
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Attention(nn.Module):
    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size, bias=False)
        self.proj = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor, rope: Rope, pos: Tensor, cu_seqlens: Tensor, max_seqlen: int) -> Tensor:
        qkv = self.qkv(x).view(x.shape[0], 3, self.num_heads, -1)
        q, k, v = qkv.unbind(1)
        q, k = rope(q, k, pos)
        out = ops.attention(q, k, v, cu_seqlens, causal=False, max_seqlen=max_seqlen)
        y: Tensor = self.proj(out.flatten(1))
        return y


class GatedMLP(nn.Module):
    """down(silu(gate x) * up x), no biases."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(dim, inner, bias=False)
        self.up_proj = nn.Linear(dim, inner, bias=False)
        self.down_proj = nn.Linear(inner, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return y


class Merger(GatedMLP):
    """mlp(gelu(layernorm(proj x))): from the vision features to the decoder's embedding space."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__(dim, inner)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.post_projection_norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(F.gelu(self.post_projection_norm(self.proj(x))))


def patch_positions(grid: Tensor, merge: int) -> Tensor:
    """The (y, x) of each patch in its frame: grid [N, 3] on the CPU -> [2, P] int32, merge-block order."""
    count = grid.prod(1)
    image = torch.arange(len(grid)).repeat_interleave(count)
    _, height, width = grid[image].unbind(1)
    row = (torch.arange(len(image)) - (count.cumsum(0) - count)[image]) % (height * width)
    block, inside = row // merge**2, row % merge**2
    y = block // (width // merge) * merge + inside // merge
    x = block % (width // merge) * merge + inside % merge
    return torch.stack((y, x)).to(torch.int32)
