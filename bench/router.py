"""router: top-8 of 128 experts by sigmoid scores with a correction bias."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from glmv import ops
from glmv.bench.cases import MOE
from glmv.bench.measure import Build, Case


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    for tokens in (1024,) if suite == "smoke" else (1024, 8192, 65536):
        for backward in (False, True):
            yield partial(_case, tokens, device, backward)


def _case(tokens: int, device: torch.device, backward: bool) -> Case:
    shape = MOE["glm-4.5v"]
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(tokens, shape.num_experts, generator=generator).to(device)
    bias = (0.1 * torch.randn(shape.num_experts, generator=generator)).to(device)
    chosen = tokens * shape.top_k * 8  # weights and expert numbers
    return Case(
        op="router",
        name=f"glm-4.5v T={tokens}",
        inputs=(logits,),
        eager=lambda logits: (eager_router(logits, bias, shape.top_k),),
        ours=lambda logits, backend: (
            ops.route(logits, bias.to(logits.dtype), top_k=shape.top_k, backend=backend).weights,
        ),
        bytes=logits.nbytes + chosen + (2 * logits.nbytes + chosen if backward else 0),
        flops=(2 if backward else 1) * 10 * logits.numel(),
        backward=backward,
    )


def eager_router(logits: Tensor, bias: Tensor, top_k: int) -> Tensor:
    """As transformers does it, without its group stage, which is idle for one group: weights [T, K]."""
    scores = logits.sigmoid()
    experts = (scores + bias).topk(top_k, -1).indices
    weights = scores.gather(1, experts)
    return weights / (weights.sum(-1, keepdim=True) + 1e-20)
