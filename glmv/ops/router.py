"""Sigmoid router of a mixture of experts: choose K of E experts per token, without an auxiliary loss.

With s = sigmoid(logits), the choice goes by c = s + bias. With groups > 1, each run of E / groups experts
scores the sum of its two largest c, and c becomes -inf outside the `top_groups` best groups. Then the K
largest c win, in descending order, ties to the lowest index. The weights come from s alone:

    w_k = scale * s_k / (sum_j s_j + 1e-20);        without `normalize`: w_k = scale * s_k.

The bias steers the load and gets no gradient (`update_router_bias_` moves it). NaN counts as the largest
value: it shows in the weights, and the experts of a row are distinct whatever the row holds. Arithmetic is
fp32 (fp64 for fp64 logits); forward and backward are deterministic.

Limits: no softmax scores; a group scores by its two best, not by its K / top_groups best (Megatron).
Sources: DeepSeek-V3 (arXiv 2412.19437), loss-free balancing (arXiv 2408.15664); GLM-4.5 (arXiv 2508.06471).
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from glmv import check
from glmv.backend import always, register, resolve

EPS = 1e-20


class Routing(NamedTuple):
    """Which experts each token goes to. -1 in `experts` = no expert: weight 0, not counted."""

    weights: Tensor  # [T, K] float32 (float64 for float64 logits)
    experts: Tensor  # [T, K] int32
    counts: Tensor  # [E] int32: tokens of each expert


# ---- reference -----------------------------------------------------------------------------------------


def reference(
    logits: Tensor,
    bias: Tensor,
    top_k: int = 8,
    groups: int = 1,
    top_groups: int = 1,
    normalize: bool = True,
    scale: float = 1.0,
    valid: Tensor | None = None,
    replay: Tensor | None = None,
) -> Routing:
    """`route` without checks: any device, differentiable, fp64 logits compute in fp64."""
    scores = widened(logits).sigmoid()
    if replay is None:
        choice = _best_groups(scores + bias, groups, top_groups)
        replay = top_experts(choice, top_k)
    experts = replay.to(torch.int32, copy=True, memory_format=torch.contiguous_format)
    if valid is not None:
        experts = experts.masked_fill(~valid.unsqueeze(1), -1)
    weights = _gather(scores, experts)
    if normalize:
        weights = weights / (weights.sum(1, keepdim=True) + EPS)
    slots = (experts + 1).flatten().long()  # slot 0 collects the -1
    counts = torch.zeros(logits.shape[1] + 1, dtype=torch.int32, device=logits.device)
    counts = counts.scatter_add(0, slots, torch.ones_like(slots, dtype=torch.int32))
    return Routing(scale * weights, experts, counts[1:].clone())


def reference_bwd(dweights: Tensor, logits: Tensor, experts: Tensor, normalize: bool, scale: float) -> Tensor:
    """dlogits [T, E]; recomputes the scores, so that the forward keeps nothing but logits and experts."""
    wide = widened(logits)
    picked = _gather(wide.sigmoid(), experts)
    dpicked = scale * torch.where(experts >= 0, dweights, 0)
    if normalize:
        total = picked.sum(1, keepdim=True) + EPS
        dpicked = (dpicked - (dpicked * picked / total).sum(1, keepdim=True)) / total
    # 1 - s as sigmoid(-logit): exact where s rounds to 1.
    dchosen = dpicked * picked * _gather((-wide).sigmoid(), experts)
    dlogits = wide.new_zeros(wide.shape).scatter_add_(1, experts.clamp(min=0).long(), dchosen)
    return dlogits.to(logits.dtype)


def widened(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _gather(scores: Tensor, experts: Tensor) -> Tensor:
    """[T, K] the scores of the experts, 0 where there is none (whatever the row holds)."""
    return torch.where(experts >= 0, scores.gather(1, experts.clamp(min=0).long()), 0)


def top_experts(scores: Tensor, k: int) -> Tensor:
    """[T, k] int64: the k largest of each row, descending. A stable sort, since topk breaks ties at will."""
    return torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :k]


def _best_groups(choice: Tensor, groups: int, top_groups: int) -> Tensor:
    """choice [T, E] with -inf outside the best groups."""
    if top_groups == groups:
        return choice
    members = choice.reshape(len(choice), groups, choice.shape[1] // groups)
    group_scores = members.topk(min(2, members.shape[2]), dim=2).values.sum(2)
    lost = torch.ones_like(group_scores, dtype=torch.bool)
    lost = lost.scatter(1, top_experts(group_scores, top_groups), False)
    return members.masked_fill(lost.unsqueeze(2), -torch.inf).flatten(1)


# ---- op + fake -----------------------------------------------------------------------------------------


@torch.library.custom_op("glmv::router_fwd", mutates_args=())
def _fwd(
    logits: Tensor,
    bias: Tensor,
    top_k: int,
    groups: int,
    top_groups: int,
    normalize: bool,
    scale: float,
    valid: Tensor | None,
    replay: Tensor | None,
    backend: str,
) -> tuple[Tensor, Tensor, Tensor]:
    if replay is not None and replay.device.type == "cpu" and replay.numel():
        low, high, last = int(replay.min()), int(replay.max()), logits.shape[1] - 1
        check.that("route", "replay", low >= -1 and high <= last, f"in [-1, E - 1 = {last}]", (low, high))
    return reference(logits, bias, top_k, groups, top_groups, normalize, scale, valid, replay)


@_fwd.register_fake
def _(logits: Tensor, bias: Tensor, top_k: int, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    tokens, experts = logits.shape
    weights = widened(logits).new_empty(tokens, top_k)
    chosen = logits.new_empty(tokens, top_k, dtype=torch.int32)
    return weights, chosen, logits.new_empty(experts, dtype=torch.int32)


@torch.library.custom_op("glmv::router_bwd", mutates_args=())
def _bwd(
    dweights: Tensor, logits: Tensor, experts: Tensor, normalize: bool, scale: float, backend: str
) -> Tensor:
    return reference_bwd(dweights, logits, experts, normalize, scale)


@_bwd.register_fake
def _(dweights: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return logits.new_empty(logits.shape)


# ---- autograd ------------------------------------------------------------------------------------------


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    logits, *_, ctx.normalize, ctx.scale, _, _, ctx.backend = inputs
    ctx.save_for_backward(logits, output[1])


def _backward(ctx: Any, dweights: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    logits, experts = ctx.saved_tensors
    dlogits = torch.ops.glmv.router_bwd(dweights, logits, experts, ctx.normalize, ctx.scale, ctx.backend)
    return dlogits, *(None,) * 9


_fwd.register_autograd(_backward, setup_context=_save)

# ---- backend table -------------------------------------------------------------------------------------

register("router", {"ref": always})

# ---- public function -----------------------------------------------------------------------------------


def route(
    logits: Tensor,
    bias: Tensor,
    *,
    top_k: int = 8,
    groups: int = 1,
    top_groups: int = 1,
    normalize: bool = True,
    scale: float = 1.0,
    valid: Tensor | None = None,
    replay: Tensor | None = None,
    backend: str = "auto",
) -> Routing:
    """Choose `top_k` experts for each token, and their weights.

    Args:
        logits: [T, E] float, before the sigmoid. Compute them in fp32: rounding changes the choice.
        bias: [E] float32 (or float64 with float64 logits), added to the scores for the choice alone.
        top_k: K, at most E * top_groups / groups.
        groups, top_groups: E is a multiple of `groups`; only experts of the best `top_groups` are chosen.
        normalize: make the weights of a token sum to `scale`, also for K = 1.
        scale: factor of the weights (routed_scaling_factor).
        valid: [T] bool; rows with False (padding) get expert -1, weight 0, no count and no gradient.
        replay: [T, K] int32 | int64, the experts of an earlier call (a rollout), taken as they are, -1 too;
            weights and gradient come from the live scores. Values are checked on the CPU alone.

    Gradients go from the weights to `logits`. Raises ValueError or TypeError for arguments that do not fit,
    BackendError if the backend cannot run them.
    """
    check.tensor("route", "logits", logits, ("T", "E"), check.FLOAT)
    tokens, experts = logits.shape
    kinds = (torch.float32, torch.float64) if logits.dtype == torch.float64 else (torch.float32,)
    check.tensor("route", "bias", bias, (f"E={experts}",), kinds, logits.device)
    check.that("route", "groups", groups >= 1 and experts % groups == 0, f"a divisor of E={experts}", groups)
    check.that("route", "top_groups", 1 <= top_groups <= groups, f"in [1, groups={groups}]", top_groups)
    most = top_groups * (experts // groups)
    check.that("route", "top_k", 1 <= top_k <= most, f"in [1, E * top_groups / groups = {most}]", top_k)
    if valid is not None:
        check.tensor("route", "valid", valid, (f"T={tokens}",), (torch.bool,), logits.device)
    if replay is not None:
        check.tensor("route", "replay", replay, (f"T={tokens}", f"K={top_k}"), check.INDEX, logits.device)
    chosen = resolve("router", backend, logits.device, logits.dtype)
    return Routing(
        *torch.ops.glmv.router_fwd(
            logits, bias, top_k, groups, top_groups, normalize, scale, valid, replay, chosen
        )
    )
