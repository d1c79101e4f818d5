# mypy: disable-error-code="no-untyped-call"
"""attention: packed segments, causal text with grouped heads and full attention in the vision tower."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from glmv import ops
from glmv.bench.cases import ATTENTION, Attention
from glmv.bench.measure import Build, Case


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    if suite == "smoke":
        yield partial(_case, "glm-4.1v text", [64, 48, 80, 64], torch.float32, device, backward=True)
        yield partial(_case, "glm-v vision", [256] * 4, torch.float32, device, backward=False)
        return
    large = device.type == "cuda"
    dtype = torch.bfloat16 if large else torch.float32
    packs = {
        "glm-4.1v text": [8192] if large else [512] * 4,
        "glm-4.5v text": [2048, 1024, 3072, 2048] if large else [256, 128, 384, 256],
        "glm-v vision": [4096] * 4 if large else [256] * 16,
    }
    for name, lengths in packs.items():
        for backward in (False, True):
            yield partial(_case, name, lengths, dtype, device, backward)


def _case(name: str, lengths: list[int], dtype: torch.dtype, device: torch.device, backward: bool) -> Case:
    shape, tokens = ATTENTION[name], sum(lengths)
    generator = torch.Generator().manual_seed(0)
    heads = (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    q, k, v = (torch.randn(tokens, h, shape.head_dim, generator=generator).to(device, dtype) for h in heads)
    bounds = torch.tensor([0, *lengths]).cumsum(0).int().to(device)
    pairs = sum(n * (n + 1) // 2 if shape.causal else n * n for n in lengths)
    forward_flops = 4 * pairs * shape.head_dim * shape.num_heads
    forward_bytes = 2 * (q.nbytes + k.nbytes)
    equal = len(set(lengths)) == 1
    packed = f"{len(lengths)} x {lengths[0]}" if equal else "+".join(map(str, lengths))
    return Case(
        op="attention",
        name=f"{name} {packed}",
        inputs=(q, k, v),
        eager=lambda q, k, v: (eager_attention(q, k, v, lengths, shape),),
        ours=lambda q, k, v, backend: (
            ops.attention(q, k, v, bounds, causal=shape.causal, max_seqlen=max(lengths), backend=backend),
        ),
        bytes=(3 if backward else 1) * forward_bytes,
        flops=int((3.5 if backward else 1) * forward_flops),
        backward=backward,
        work_bound=True,
    )


def eager_attention(q: Tensor, k: Tensor, v: Tensor, lengths: list[int], shape: Attention) -> Tensor:
    """As transformers does it with SDPA.

    Text: one call over the packed row with a block-diagonal causal mask and repeated key heads.
    Vision: one call per segment.
    """
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
    if not shape.causal:
        pieces = zip(*(x.split(lengths, 2) for x in (q, k, v)), strict=True)
        return torch.cat([sdpa(*piece) for piece in pieces], 2)[0].transpose(0, 1)
    segment = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths)).to(q.device)
    mask = (segment[:, None] == segment) & torch.ones(
        len(segment), len(segment), device=q.device
    ).tril().bool()
    groups = shape.num_heads // shape.num_kv_heads
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    return sdpa(q, k, v, attn_mask=mask)[0].transpose(0, 1)
