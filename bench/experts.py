# mypy: disable-error-code="no-untyped-call"
"""experts: the routed feed-forward layers of a mixture of experts."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from glmv import ops
from glmv.bench.cases import MOE, Moe
from glmv.bench.measure import Build, Case


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    if suite == "smoke":
        yield partial(_case, "small", MOE["small"], 128, torch.float32, device, backward=True)
        return
    # On the CPU the experts of GLM-4.5V at a quarter of their width: in full they take 6 GB in fp32.
    large = device.type == "cuda"
    name, shape = ("glm-4.5v", MOE["glm-4.5v"]) if large else ("glm-4.5v / 4", Moe(128, 8, 1024, 352))
    for backward in (False, True):
        dtype = torch.bfloat16 if large else torch.float32
        yield partial(_case, name, shape, 8192 if large else 1024, dtype, device, backward)


def _case(
    name: str, shape: Moe, tokens: int, dtype: torch.dtype, device: torch.device, backward: bool
) -> Case:
    generator = torch.Generator().manual_seed(0)

    def random(*sizes: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*sizes, generator=generator)).to(device, dtype)

    width, inner = shape.hidden, shape.intermediate
    x = random(tokens, width)
    gate_up = random(shape.num_experts, 2 * inner, width, scale=width**-0.5)
    down = random(shape.num_experts, width, inner, scale=inner**-0.5)
    logits = torch.randn(tokens, shape.num_experts, generator=generator).to(device)
    bias = torch.zeros(shape.num_experts, device=device)
    routing = ops.route(logits, bias, top_k=shape.top_k, backend="ref")
    passes = 3 if backward else 1
    return Case(
        op="experts",
        name=f"{name} T={tokens} E={shape.num_experts}",
        inputs=(x, gate_up, down),
        eager=lambda x, gate_up, down: (eager_experts(x, routing, gate_up, down),),
        ours=lambda x, gate_up, down, backend: (ops.experts(x, routing, gate_up, down, backend=backend),),
        bytes=passes * (2 * x.nbytes + gate_up.nbytes + down.nbytes),
        flops=passes * 6 * tokens * shape.top_k * width * inner,
        backward=backward,
        work_bound=True,
    )


def eager_experts(x: Tensor, routing: ops.Routing, gate_up: Tensor, down: Tensor) -> Tensor:
    """As transformers does it: a loop over the experts that were hit, gather, two products, index_add_."""
    out = torch.zeros_like(x)
    for expert in routing.experts.unique().tolist():
        token, slot = (routing.experts == expert).nonzero(as_tuple=True)
        gate, up = (x[token] @ gate_up[expert].T).chunk(2, -1)
        y = (torch.nn.functional.silu(gate) * up) @ down[expert].T
        out.index_add_(0, token, (y * routing.weights[token, slot, None]).to(x.dtype))
    return out
