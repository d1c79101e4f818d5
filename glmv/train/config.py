"""Configuration of the training stages: plain frozen dataclasses, every default stated and sourced.

[paper] marks what the GLM-4.5V / GLM-4.1V-Thinking report (arXiv 2507.01006) states, [choice] what it leaves
open. The string under a field is its line in `glmv sft --help`.
"""

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True)
class SamplingConfig:
    """How answers are sampled."""

    temperature: float = 1.0
    """softmax temperature; 0 is greedy; 1 in training [paper]"""
    top_p: float = 1.0
    """nucleus sampling; 1 in training [paper]"""
    think_tokens: int = 28
    """budget of the thinking part; then `</think>` is inserted (force answering) [paper]"""
    answer_tokens: int = 28
    """budget of the answer part, counted after `</think>` [choice]"""

    @property
    def max_tokens(self) -> int:
        """Longest answer: both parts, and the `</think>` between them."""
        return self.think_tokens + 1 + self.answer_tokens

    def __post_init__(self) -> None:
        _require("sampling.temperature", self.temperature >= 0, ">= 0 (0 is greedy)", self.temperature)
        _require("sampling.top_p", 0 < self.top_p <= 1, "in (0, 1]", self.top_p)
        _require_positive(self, "sampling", ("think_tokens", "answer_tokens"))


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and schedule: linear warm-up, then a linear decay."""

    name: Literal["adamw", "muon"] = "adamw"
    """adamw, or muon for hidden matrices with AdamW for the rest"""
    lr: float = 3e-4
    """peak learning rate"""
    beta1: float = 0.9
    """AdamW's decay of the first moment"""
    beta2: float = 0.99
    """AdamW's decay of the second moment"""
    weight_decay: float = 0.0
    """decoupled weight decay of matrices"""
    warmup_steps: int = 10
    """optimizer steps of linear warm-up"""
    final_lr_ratio: float = 1.0
    """the learning rate falls linearly to this share of lr at the last step"""
    grad_clip: float = 1.0
    """largest global L2 norm of the gradient"""

    def __post_init__(self) -> None:
        _require("optim.lr", self.lr > 0, "> 0", self.lr)
        _require("optim.beta1", 0 <= self.beta1 < 1, "in [0, 1)", self.beta1)
        _require("optim.beta2", 0 <= self.beta2 < 1, "in [0, 1)", self.beta2)
        _require("optim.weight_decay", self.weight_decay >= 0, ">= 0", self.weight_decay)
        _require("optim.warmup_steps", self.warmup_steps >= 0, ">= 0", self.warmup_steps)
        _require("optim.grad_clip", self.grad_clip > 0, "> 0", self.grad_clip)
        _require("optim.final_lr_ratio", 0 <= self.final_lr_ratio <= 1, "in [0, 1]", self.final_lr_ratio)


@dataclass(frozen=True)
class LossConfig:
    """Options of `ops.grpo_loss`. Defaults: no KL, no entropy term, clip-higher, per-sample mean [paper]."""

    objective: Literal["clip", "cispo"] = "clip"
    """clip (PPO, GRPO) or cispo (clipped importance weight)"""
    level: Literal["token", "sequence"] = "token"
    """ratio of each token, or one ratio a sequence (GSPO)"""
    agg: Literal["sample", "token", "constant"] = "sample"
    """mean of each sample, then over samples; mean over all tokens; or sum / (samples x constant_length)"""
    eps_low: float = 0.2
    """the ratio is clipped at 1 - eps_low [choice]"""
    eps_high: float = 0.28
    """the ratio is clipped at 1 + eps_high: clip-higher [choice]"""
    dual_clip: float | None = None
    """lower bound c * A of the objective for negative advantages; off by default"""
    kl_coef: float = 0.0
    """weight of the KL term to the starting checkpoint; 0 [paper]"""
    entropy_coef: float = 0.0
    """weight of an entropy bonus; 0 [paper]"""
    constant_length: int = 48
    """the constant length of agg=constant, in tokens"""

    def __post_init__(self) -> None:
        _require("loss.eps_low", 0 <= self.eps_low < 1, "in [0, 1)", self.eps_low)
        _require("loss.eps_high", self.eps_high >= 0, ">= 0", self.eps_high)
        _require("loss.kl_coef", self.kl_coef >= 0, ">= 0", self.kl_coef)
        clip_ok = self.dual_clip is None or self.dual_clip > 1
        _require("loss.dual_clip", clip_ok, "null or > 1", self.dual_clip)
        if self.objective == "cispo":
            _require("loss.level", self.level == "token", "token with objective cispo", self.level)
            _require("loss.dual_clip", self.dual_clip is None, "null with objective cispo", self.dual_clip)
        _require_positive(self, "loss", ("constant_length",))


@dataclass(frozen=True)
class AdvantageConfig:
    """Group advantage (reward - mean) / (std + eps), in verl's convention [choice]."""

    scale: Literal["std", "none"] = "std"
    """divide by the group's standard deviation, or not (Dr.GRPO)"""
    ddof: int = 1
    """the standard deviation divides by group_size - ddof"""
    eps: float = 1e-6
    """added to the standard deviation"""

    def __post_init__(self) -> None:
        _require("advantage.ddof", self.ddof in (0, 1), "0 or 1", self.ddof)
        _require("advantage.eps", self.eps >= 0, ">= 0", self.eps)


@dataclass(frozen=True)
class CurriculumConfig:
    """Curriculum sampling (RLCS)."""

    kind: Literal["rlcs", "uniform"] = "rlcs"
    """rlcs: tiers that teach are drawn more often; uniform: all prompts of a domain alike"""
    floor: float = 0.05
    """least weight of a tier [choice]"""
    success_ema: float = 0.5
    """b of p <- (1-b) p + b * success rate of the group [choice]"""
    ratio_ema: float = 0.3
    """a of ema <- a * ratio + (1-a) * ema, the expansion ratio [choice]"""
    max_expansion: float = 4.0
    """cap of the expansion ratio [choice]"""
    cooldown: int = 1
    """iterations that a drawn prompt rests [choice]"""
    domains: dict[str, float] = field(default_factory=dict)
    """weight of each domain, one without a weight is left out; empty: all domains alike"""

    def __post_init__(self) -> None:
        _require("curriculum.floor", 0 < self.floor <= 1, "in (0, 1]", self.floor)
        _require("curriculum.success_ema", 0 < self.success_ema <= 1, "in (0, 1]", self.success_ema)
        _require("curriculum.ratio_ema", 0 < self.ratio_ema <= 1, "in (0, 1]", self.ratio_ema)
        _require("curriculum.max_expansion", self.max_expansion >= 1, ">= 1", self.max_expansion)
        _require("curriculum.cooldown", self.cooldown >= 0, ">= 0", self.cooldown)


@dataclass(frozen=True)
class SftConfig:
    """Supervised cold start."""

    data: str
    """JSONL or parquet with a `response` in every row"""
    out: str
    """run directory: metrics, checkpoint, and the model at the end"""
    model: str = "tiny"
    """`tiny` (random start) or a directory with a checkpoint"""
    steps: int = 300
    """optimizer steps"""
    batch_size: int = 32
    """samples of a step"""
    capacity_tokens: int = 2048
    """packed tokens of a micro-step at most"""
    seed: int = 0
    """of the random start and the order of the data"""
    threads: int = 2
    """CPU threads; the result depends on them, so they are pinned"""
    save_every: int = 100
    """steps between checkpoints"""
    optim: OptimConfig = field(
        default_factory=lambda: OptimConfig("muon", lr=2e-3, beta2=0.95, weight_decay=0.01, warmup_steps=50)
    )
    """optimizer"""

    def __post_init__(self) -> None:
        _require_positive(self, "sft", ("steps", "batch_size", "capacity_tokens", "threads", "save_every"))
        _require("sft.seed", self.seed >= 0, ">= 0", self.seed)


@dataclass(frozen=True)
class RlConfig:
    """Reinforcement learning with curriculum sampling: GRPO by the GLM-V recipe."""

    data: str
    """JSONL or parquet with `reward_model` in every row"""
    out: str
    """run directory: metrics, checkpoint, and the model at the end"""
    model: str
    """directory with a checkpoint: of `glmv sft`, or any GLM-4.1V"""
    steps: int = 150
    """iterations of rollout, reward and update"""
    prompts: int = 48
    """groups that an iteration trains on"""
    group_size: int = 8
    """answers a prompt"""
    minibatches: int = 2
    """optimizer steps of an iteration"""
    capacity_tokens: int = 2048
    """packed tokens of a micro-step at most"""
    offline_samples: int = 4
    """answers a prompt for the offline difficulty; 0: every prompt starts at a success rate of 0.5"""
    seed: int = 0
    """of the draws and the sampling"""
    threads: int = 2
    """CPU threads; the result depends on them, so they are pinned"""
    save_every: int = 25
    """iterations between checkpoints"""
    check_data: str | None = None
    """held-out rows for a strict check of the verifiers; null: no check, signs from the rollouts alone"""
    check_every: int = 5
    """iterations between strict checks"""
    check_prompts: int = 70
    """rows of a strict check, the domains of check_data in turn"""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """rollouts"""
    loss: LossConfig = field(default_factory=LossConfig)
    """policy loss"""
    advantage: AdvantageConfig = field(default_factory=AdvantageConfig)
    """group advantage"""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """choice of prompts and groups"""
    optim: OptimConfig = field(default_factory=lambda: OptimConfig(final_lr_ratio=0.3))
    """optimizer"""

    def __post_init__(self) -> None:
        counts = ("steps", "prompts", "minibatches", "capacity_tokens", "threads", "save_every")
        _require_positive(self, "rl", (*counts, "check_every", "check_prompts"))
        _require("rl.group_size", self.group_size >= 2, ">= 2 (one answer has no advantage)", self.group_size)
        _require("rl.offline_samples", self.offline_samples >= 0, ">= 0", self.offline_samples)
        temperature = self.sampling.temperature
        _require("rl.sampling.temperature", temperature > 0, "> 0 in training", temperature)
        _require("rl.seed", self.seed >= 0, ">= 0", self.seed)
        longest, capacity = self.sampling.max_tokens, self.capacity_tokens
        _require("rl.capacity_tokens", capacity > longest, f"> {longest}, the longest answer", capacity)


@dataclass(frozen=True)
class EvalConfig:
    """Held-out evaluation: mean reward over samples, one greedy answer, and pass@k."""

    group_size: int = 8
    """sampled answers a prompt"""
    seed: int = 7
    """of the sampling"""
    batch_prompts: int = 96
    """prompts of a generation call"""
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    """how the answers are sampled"""

    def __post_init__(self) -> None:
        _require_positive(self, "eval", ("group_size", "batch_prompts"))
        _require("eval.seed", self.seed >= 0, ">= 0", self.seed)


def _require(name: str, ok: bool, expected: str, got: object) -> None:
    if not ok:
        raise ValueError(f"config: {name} must be {expected}, got {got!r}")


def _require_positive(config: object, prefix: str, names: tuple[str, ...]) -> None:
    for name in names:
        value = getattr(config, name)
        _require(f"{prefix}.{name}", value >= 1, ">= 1", value)
