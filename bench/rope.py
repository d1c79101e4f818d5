# mypy: disable-error-code="no-untyped-call"
"""rope: both pairings of the GLM-V text models and the vision tower."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from glmv import ops
from glmv.bench.cases import ROPE, Rope
from glmv.bench.measure import Build, Case, Outputs


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    if suite == "smoke":
        yield partial(_case, "glm-4.1v text", 1024, torch.float32, device, backward=False)
        yield partial(_case, "glm-4.1v text", 1024, torch.float32, device, backward=True)
        yield partial(_case, "glm-v vision", 1024, torch.bfloat16, device, backward=False)
        return
    for name in ("glm-4.1v text", "glm-4.5v text", "glm-v vision"):
        for dtype in (torch.float32, torch.bfloat16):
            for backward in (False, True):
                tokens = 4096 if device.type == "cpu" else 8192
                yield partial(_case, name, tokens, dtype, device, backward, with_peers=True)


def _case(
    name: str,
    tokens: int,
    dtype: torch.dtype,
    device: torch.device,
    backward: bool,
    with_peers: bool = False,
) -> Case:
    shape = ROPE[name]
    generator = torch.Generator().manual_seed(0)
    heads = shape.num_heads + 2 * shape.num_kv_heads
    qkv = torch.randn(tokens, heads, shape.head_dim, generator=generator).to(device, dtype)
    q, k, _ = qkv.split([shape.num_heads, shape.num_kv_heads, shape.num_kv_heads], 1)
    inv_freq, axis_of_lane = (x.to(device) for x in shape.tables())
    pos = shape.positions(tokens).to(device)
    turned = tokens * (shape.num_heads + shape.num_kv_heads)
    passes = 2 if backward else 1
    # transformers computes its tables once for all layers, so they are not part of the time.
    tables = {t: eager_tables(pos, inv_freq, shape, t) for t in (dtype, torch.float64)}
    return Case(
        op="rope",
        name=f"{name} T={tokens}",
        inputs=(q, k),
        eager=lambda q, k: eager_rope(q, k, *tables[q.dtype], shape.pairing),
        ours=lambda q, k, backend: ops.rope(
            q, k, pos, inv_freq, axis_of_lane, shape.pairing, backend=backend
        ),
        bytes=passes * (2 * turned * shape.head_dim * q.element_size() + pos.nbytes),
        flops=passes * 3 * turned * 2 * len(inv_freq),
        backward=backward,
        peers=_peers(shape, *tables[dtype]) if with_peers and find_spec("transformers") else {},
    )


def _peers(shape: Rope, cos: Tensor, sin: Tensor) -> dict[str, Callable[..., Outputs]]:
    """transformers' own functions."""
    from transformers.models.glm4v import modeling_glm4v as dense
    from transformers.models.glm4v_moe import modeling_glm4v_moe as moe

    if shape.restart:
        return {"transformers": lambda q, k: dense.apply_rotary_pos_emb_vision(q, k, cos[:, 0], sin[:, 0])}
    model = dense if shape.pairing == "adjacent" else moe

    def text(q: Tensor, k: Tensor) -> Outputs:
        y = model.apply_rotary_pos_emb(q[None], k[None], cos[None, :, 0], sin[None, :, 0], unsqueeze_dim=2)
        return y[0][0], y[1][0]

    return {"transformers": text}


def eager_tables(pos: Tensor, inv_freq: Tensor, shape: Rope, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos, sin [T, 1, R] as transformers makes them: all axes, sections joined, the text's rounded."""
    angle = (pos[..., None].float() * inv_freq).split(shape.sections, -1)
    joined = torch.cat([section[i] for i, section in enumerate(angle)], -1).unsqueeze(1)
    wide = torch.promote_types(dtype, torch.float32)
    full = joined.repeat_interleave(2, -1) if shape.pairing == "adjacent" else torch.cat((joined, joined), -1)
    table_dtype = wide if shape.restart else dtype  # the vision tower computes in fp32
    return full.to(wide).cos().to(table_dtype), full.to(wide).sin().to(table_dtype)


def eager_rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, pairing: str) -> tuple[Tensor, Tensor]:
    """x * cos + rotate(x) * sin on the dimensions that turn, as transformers writes it."""

    def turn(x: Tensor) -> Tensor:
        turning, still = x[..., : cos.shape[-1]].to(cos.dtype), x[..., cos.shape[-1] :]
        if pairing == "adjacent":
            other = torch.stack((-turning[..., 1::2], turning[..., 0::2]), -1).flatten(-2)
        else:
            a, b = turning.chunk(2, -1)
            other = torch.cat((-b, a), -1)
        return torch.cat(((turning * cos + other * sin).to(x.dtype), still), -1)

    return turn(q), turn(k)
