"""The decoder of GLM-4.1V: packed sequences, M-RoPE on adjacent pairs, sandwich norms, fused gate|up.

x += post_self_attn_layernorm(attention(input_layernorm(x)))
x += post_mlp_layernorm(mlp(post_attention_layernorm(x)))
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from glmv import ops
from glmv.model.cache import Append
from glmv.model.config import TextConfig
from glmv.model.layers import RMSNorm, Rope


@dataclass(frozen=True)
class Sequences:
    """What attention needs to know about the packed tokens; the same for every layer."""

    pos: Tensor  # [3, T] int32: time, height, width
    cu_seqlens: Tensor  # [S+1] int32
    max_seqlen: int
    append: Append | None = None  # where the keys and values go, when a cache is filled or read


class Decoder(nn.Module):
    """`model.language_model` of a checkpoint."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, i) for i in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        # One run of frequencies from high to low, cut into a section for each axis.
        axes = [axis for axis, n in enumerate(config.mrope_section) for _ in range(n)]
        lanes = [(axis, i) for i, axis in enumerate(axes)]
        self.rope = Rope(config.rope_theta, config.rotary_dim, lanes, "adjacent")

    def forward(self, x: Tensor, sequences: Sequences) -> Tensor:
        """x [T, C] embeddings -> [T, C] after the final norm."""
        for layer in self.layers:
            x = layer(x, self.rope, sequences)
        y: Tensor = self.norm(x)
        return y


class Layer(nn.Module):
    def __init__(self, config: TextConfig, index: int) -> None:
        super().__init__()
        self.self_attn = Attention(config, index)
        self.mlp = MLP(config)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_self_attn_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_mlp_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, rope: Rope, sequences: Sequences) -> Tensor:
        x = x + self.post_self_attn_layernorm(self.self_attn(self.input_layernorm(x), rope, sequences))
        y: Tensor = x + self.post_mlp_layernorm(self.mlp(self.post_attention_layernorm(x)))
        return y


class Attention(nn.Module):
    """Causal attention with grouped queries; q, k, v have a bias, the output has none."""

    def __init__(self, config: TextConfig, index: int) -> None:
        super().__init__()
        self.index = index
        self.head_dim = config.head_dim
        width, kv_width = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, kv_width)
        self.v_proj = nn.Linear(width, kv_width)
        self.o_proj = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, rope: Rope, sequences: Sequences) -> Tensor:
        q, k, v = (
            proj(x).unflatten(1, (-1, self.head_dim)) for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rope(q, k, sequences.pos)
        y: Tensor = self.o_proj(self._attend(q, k, v, sequences).flatten(1))
        return y

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, s: Sequences) -> Tensor:
        append = s.append
        if append is not None:
            keys, values = append.write(self.index, k, v)
            if not append.fresh:
                return ops.attention(
                    q,
                    keys,
                    values,
                    s.cu_seqlens,
                    causal=True,
                    max_seqlen=s.max_seqlen,
                    cu_seqlens_k=append.cu_seqlens_k,
                    seqused_k=append.used,
                )
        return ops.attention(q, k, v, s.cu_seqlens, causal=True, max_seqlen=s.max_seqlen)


class MLP(nn.Module):
    """down(silu(gate) * up) with gate | up as one matrix, gate first."""

    def __init__(self, config: TextConfig) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(config.hidden_size, 2 * config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, -1)
        y: Tensor = self.down_proj(F.silu(gate) * up)
        return y
