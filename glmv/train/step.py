"""One optimizer step over many rows: pack into micro-steps, accumulate, clip, update.

The denominator of the loss is an argument, computed once over the whole step, so the gradient does not depend
on how the rows were packed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glmv import ops
from glmv.data import pack, pack_rows
from glmv.data.types import PackedBatch, Row
from glmv.model import Glm4v
from glmv.train.config import LossConfig
from glmv.train.optim import Optimizer

# (hidden [T, C], batch) -> (scalar loss, metrics). A metric is a sum over the kept rows, to be added up over
# micro-steps; one whose name ends in `_max` is combined by maximum.
Loss = Callable[[Tensor, PackedBatch], tuple[Tensor, dict[str, Tensor]]]


@dataclass(frozen=True)
class StepReport:
    """What one optimizer step did."""

    loss: float
    sums: dict[str, float]  # of the loss, over the kept rows (`*_max`: maxima)
    metrics: dict[str, float]  # of the optimizer
    tokens: int
    kept: int  # rows of the loss
    micro_steps: int
    bin_fill: float  # packed tokens / (micro-steps * capacity)


def train_step(
    model: Glm4v, optimizer: Optimizer, rows: Sequence[Row], loss: Loss, capacity_tokens: int, step: int
) -> StepReport:
    """Forward and backward over all rows in packed micro-steps, then update number `step`.

    Raises:
        ValueError: no rows, or one row longer than the capacity.
    """
    if not rows:
        raise ValueError("train_step: rows must hold at least one sequence, got none")
    micro = micro_steps(rows, capacity_tokens)
    total = torch.zeros(())
    sums: dict[str, Tensor] = {}
    tokens = kept = 0
    for indices in micro:
        batch = pack_rows([rows[i] for i in indices])
        value, parts = loss(model(batch).hidden, batch)
        torch.autograd.backward(value)
        total += value.detach()
        for name, part in parts.items():
            combine = torch.maximum if name.endswith("_max") else torch.add
            sums[name] = combine(sums[name], part) if name in sums else part
        tokens += batch.tokens.numel()
        kept += batch.rows.numel()
    return StepReport(
        loss=float(total),
        sums={name: float(part) for name, part in sums.items()},
        metrics=optimizer.step(step),
        tokens=tokens,
        kept=kept,
        micro_steps=len(micro),
        bin_fill=tokens / (len(micro) * capacity_tokens),
    )


def micro_steps(rows: Sequence[Row], capacity_tokens: int) -> list[list[int]]:
    """Row indices of each micro-step: as few as first-fit-decreasing needs, none over the capacity.

    Neighbours that show the same images travel together while they fit, so that `pack_rows` computes their
    features once.
    """
    units: list[list[int]] = []
    lengths: list[int] = []
    for i, row in enumerate(rows):
        if row.num_tokens > capacity_tokens:
            raise ValueError(
                f"row {row.sample_id}: {row.num_tokens} tokens exceed capacity_tokens={capacity_tokens}"
            )
        joins = bool(units) and rows[units[-1][-1]].patches is row.patches
        if joins and lengths[-1] + row.num_tokens <= capacity_tokens:
            units[-1].append(i)
            lengths[-1] += row.num_tokens
        else:
            units.append([i])
            lengths.append(row.num_tokens)
    return [[i for unit in members for i in units[unit]] for members in pack(lengths, capacity_tokens)]


def supervised_loss(model: Glm4v, denom: int) -> Loss:
    """Cross entropy over the kept rows, divided by `denom` = kept rows of the whole step."""

    def loss(hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, dict[str, Tensor]]:
        logp, _ = ops.linear_logp(hidden[batch.rows], model.lm_head_weight, batch.labels)
        return -logp.sum() / denom, {}

    return loss


def policy_loss(
    model: Glm4v,
    config: LossConfig,
    denom: int,
    temperature: float,
    logit_bias: Tensor,
    reference: Glm4v | None = None,
) -> Loss:
    """`ops.grpo_loss` on the kept rows; `denom` as the aggregation defines it, over the whole step.

    `reference` is the policy that the KL term holds on to; it is needed where `kl_coef` is not 0.
    """

    def loss(hidden: Tensor, batch: PackedBatch) -> tuple[Tensor, dict[str, Tensor]]:
        logp_ref = None
        if config.kl_coef != 0:
            assert reference is not None
            logp_ref = _logp(reference, batch, temperature, logit_bias)
        out = ops.grpo_loss(
            hidden[batch.rows],
            model.lm_head_weight,
            batch.labels,
            batch.logp_old,
            batch.adv,
            batch.loss_cu_seqlens,
            denom=denom,
            objective=config.objective,
            level=config.level,
            agg=config.agg,
            eps_low=config.eps_low,
            eps_high=config.eps_high,
            dual_clip=config.dual_clip,
            logp_ref=logp_ref,
            kl_coef=config.kl_coef,
            entropy_coef=config.entropy_coef,
            temperature=temperature,
            logit_bias=logit_bias,
        )
        return out.loss, {**out.metrics, "ratio_max": out.ratio_max}

    return loss


@torch.no_grad()
def _logp(model: Glm4v, batch: PackedBatch, temperature: float, logit_bias: Tensor) -> Tensor:
    hidden = model(batch).hidden[batch.rows]
    weight = model.lm_head_weight
    logp, _ = ops.linear_logp(hidden, weight, batch.labels, temperature, logit_bias=logit_bias)
    return logp


def loss_denominator(config: LossConfig, rows: Sequence[Row]) -> int:
    """The `denom` of one step: sequences with kept rows, kept rows, or sequences x constant length."""
    kept = [int(row.keep.sum()) for row in rows]
    sequences = sum(k > 0 for k in kept)
    if config.agg == "sample":
        return sequences
    if config.agg == "token":
        return sum(kept)
    return sequences * config.constant_length
