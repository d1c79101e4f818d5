"""token_loss: language-model head, log-probabilities and the clipped policy loss, forward and backward."""

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from glmv import ops
from glmv.bench.measure import Build, Case

GROUPS = 4  # sequences in the batch
EPS_LOW, EPS_HIGH = 0.2, 0.28


def cases(suite: str, device: torch.device) -> Iterator[Build]:
    if suite == "smoke":
        yield partial(_case, 128, 256, 16384, torch.float32, device)
    elif device.type == "cuda":
        yield partial(_case, 8192, 4096, 151552, torch.bfloat16, device)
    else:
        yield partial(_case, 512, 1024, 151552, torch.float32, device)


def _case(rows: int, width: int, vocabulary: int, dtype: torch.dtype, device: torch.device) -> Case:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(rows, width, generator=generator).to(device, dtype)
    weight = (2 * torch.randn(vocabulary, width, generator=generator) * width**-0.5).to(device, dtype)
    labels = torch.randint(vocabulary, (rows,), generator=generator).to(device)
    adv = torch.randn(GROUPS, generator=generator).to(device)
    bounds = torch.arange(GROUPS + 1, dtype=torch.int32, device=device) * (rows // GROUPS)
    with torch.no_grad():
        now = eager_logp(hidden, weight, labels)
    # Off-policy by up to 40 %, so that some rows are clipped.
    logp_old = now + (torch.rand(rows, generator=generator).to(device) - 0.5) * 0.8

    def eager(hidden: Tensor, weight: Tensor) -> tuple[Tensor]:
        return (
            eager_loss(eager_logp(hidden, weight, labels), logp_old, adv.repeat_interleave(rows // GROUPS)),
        )

    def ours(hidden: Tensor, weight: Tensor, backend: str) -> tuple[Tensor]:
        out = ops.grpo_loss(
            hidden, weight, labels, logp_old, adv, bounds,
            eps_low=EPS_LOW, eps_high=EPS_HIGH, agg="sample", denom=GROUPS, backend=backend,
        )  # fmt: skip
        return (out.loss,)

    return Case(
        op="token_loss",
        name=f"grpo M={rows} C={width} V={vocabulary}",
        inputs=(hidden, weight),
        eager=eager,
        ours=ours,
        bytes=2 * (hidden.nbytes + weight.nbytes),
        flops=6 * rows * width * vocabulary,
        backward=True,
        work_bound=True,
    )


def eager_logp(hidden: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    """[M], by the whole matrix of logits, as trainers write it."""
    logits = hidden @ weight.T
    wide = torch.promote_types(logits.dtype, torch.float32)
    return log_softmax(logits.to(wide), -1).gather(1, labels[:, None])[:, 0]


def eager_loss(logp: Tensor, logp_old: Tensor, adv: Tensor) -> Tensor:
    """Clipped loss, mean over the rows of a sequence, mean over sequences (all of one length here)."""
    ratio = (logp - logp_old.to(logp.dtype)).exp()
    return -torch.min(ratio * adv, ratio.clamp(1 - EPS_LOW, 1 + EPS_HIGH) * adv).mean()
