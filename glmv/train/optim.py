"""Optimizers of the trainer: torch's own AdamW and Muon, and a linear schedule."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glmv.train.config import OptimConfig

# Matrices that Muon must not orthogonalise: rows of these are looked up or are classes (Jordan 2024, Muon).
NOT_MUON = ("embed_tokens", "position_embedding", "lm_head")


class Optimizer:
    """One or two torch optimizers behind one step, with a learning rate that follows `OptimConfig`."""

    def __init__(self, model: nn.Module, config: OptimConfig, total_steps: int):
        self.config = config
        self.total_steps = total_steps
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.parts = _build(model, config)

    def step(self, step: int) -> dict[str, float]:
        """Clip the gradient, apply step number `step` (from 0) and drop the gradients.

        Raises:
            ValueError: the gradient is not finite; the weights are as they were.
        """
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.grad_clip)
        if not bool(norm.isfinite()):
            raise ValueError(f"the gradient of optimizer step {step} is not finite (norm {float(norm)})")
        lr = self.config.lr * lr_factor(step, self.total_steps, self.config)
        for part in self.parts:
            for group in part.param_groups:
                group["lr"] = lr
            part.step()
            part.zero_grad(set_to_none=True)
        return {"grad_norm": float(norm), "lr": lr}

    def state_dict(self) -> list[dict[str, Any]]:
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, state: list[dict[str, Any]]) -> None:
        for part, saved in zip(self.parts, state, strict=True):
            part.load_state_dict(saved)


def lr_factor(step: int, total_steps: int, config: OptimConfig) -> float:
    """Linear warm-up over `warmup_steps`, times a linear decay from 1 to `final_lr_ratio` over all steps."""
    warm = min(1.0, (step + 1) / max(1, config.warmup_steps))
    decay = 1 - (1 - config.final_lr_ratio) * step / max(1, total_steps)
    return warm * decay


def _build(model: nn.Module, config: OptimConfig) -> list[torch.optim.Optimizer]:
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    betas = (config.beta1, config.beta2)
    if config.name == "adamw":
        decayed = [p for _, p in named if p.dim() > 1]
        return [_adamw(decayed, [p for _, p in named if p.dim() <= 1], config.lr, betas, config.weight_decay)]
    hidden = [p for n, p in named if p.dim() == 2 and not any(part in n for part in NOT_MUON)]
    chosen = {id(p) for p in hidden}
    muon = torch.optim.Muon(
        hidden,
        lr=config.lr,
        momentum=0.95,
        weight_decay=config.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    rest = [p for _, p in named if id(p) not in chosen]
    return [muon, _adamw([], rest, config.lr, betas, 0.0)]


def _adamw(
    decayed: Sequence[Tensor],
    plain: Sequence[Tensor],
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [{"params": list(plain), "weight_decay": 0.0}]
    if decayed:
        groups.append({"params": list(decayed), "weight_decay": weight_decay})
    return torch.optim.AdamW(groups, lr=lr, betas=betas, fused=True)
