"""The flow of the data, as frozen dataclasses.

    SFT: read -> Sample -> process -> Prompt -> Row -> plan -> PackedBatch
    RL:  draw -> Prompt -> rollout -> Completion -> score -> advantage -> Row -> plan -> PackedBatch

Letters: T packed tokens, P vision patches, N images or videos, S segments, M rows kept for the loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

TEXT, IMAGE, VIDEO = 0, 1, 2  # values of `modality`


@dataclass(frozen=True)
class Sample:
    """One row of a dataset, with verl's field names, so that existing sets can be read.

    `prompt` is a chat: {"role": "user", "content": "<image>How many?"}; each `<image>` / `<video>` in it
    stands for the next entry of `images` / `videos` (paths or `data:` URIs; a video is a list of
    frames and their rate). `reward_model` holds `ground_truth` and, for our verifiers, `kind` and `options`.
    """

    id: str
    data_source: str
    prompt: tuple[Mapping[str, str], ...]
    images: tuple[str, ...] = ()
    videos: tuple[Mapping[str, Any], ...] = ()  # {"frames": [path, ...], "fps": float}
    reward_model: Mapping[str, Any] = field(default_factory=dict)
    extra_info: Mapping[str, Any] = field(
        default_factory=dict
    )  # domain, task, difficulty, split, source, chance
    response: str | None = None  # the target of supervised training

    @property
    def domain(self) -> str:
        return str(self.extra_info.get("domain", self.data_source))


@dataclass(frozen=True)
class Prompt:
    """A processed sample: what the model reads before it answers."""

    sample: Sample
    tokens: Tensor  # [T] int64, image placeholders already repeated
    pos: Tensor  # [3, T] int32
    modality: Tensor  # [T] int8: TEXT, IMAGE, VIDEO
    patches: Tensor  # [P, 1176] float32; P = 0 for text only
    grid: Tensor  # [N, 3] int64 (t, h, w) in patches, in order of appearance
    next_pos: int  # position on all three axes of the first token of the answer


FINISH = Literal["stop", "length", "forced"]


@dataclass(frozen=True)
class Completion:
    """One sampled answer. `forced` marks tokens that were inserted, not sampled: they never enter a loss."""

    prompt_id: str
    index: int  # 0 .. group_size - 1
    tokens: Tensor  # [n] int64, with the end token if one was sampled
    logp: Tensor  # [n] float32 under the policy that sampled, at the rollout temperature; 0 where forced
    forced: Tensor  # [n] bool
    finish: FINISH
    policy_version: int = 0


@dataclass(frozen=True)
class Row:
    """One training sequence: a prompt and an answer.

    Rows of one group share the `patches` object of their prompt; `pack` then computes its features once.
    """

    sample_id: str
    tokens: Tensor  # [T] int64
    pos: Tensor  # [3, T] int32
    modality: Tensor  # [T] int8
    patches: Tensor  # [P, 1176] float32
    grid: Tensor  # [N, 3] int64
    keep: Tensor  # [T] bool: this token is a target of the loss (predicted from the token before it)
    logp_old: Tensor | None = None  # [keep.sum()] float32
    adv: float = 0.0
    weight: Tensor | None = None  # [keep.sum()] float32

    @property
    def num_tokens(self) -> int:
        return int(self.tokens.numel())


@dataclass(frozen=True)
class PackedBatch:
    """Several rows as one packed sequence: one micro-step."""

    tokens: Tensor  # [T] int64
    pos: Tensor  # [3, T] int32
    cu_seqlens: Tensor  # [S+1] int32
    max_seqlen: int
    modality: Tensor  # [T] int8
    patches: Tensor  # [P, 1176] float32, each image once even if several rows show it
    grid: Tensor  # [N, 3] int64 on the CPU
    vis_cu_seqlens: Tensor  # [F+1] int32: one segment per frame
    visual_index: (
        Tensor  # [number of visual tokens] int64: row of the merged features of each, in token order
    )
    rows: Tensor  # [M] int64: hidden row that predicts the label
    labels: Tensor  # [M] int64
    loss_cu_seqlens: Tensor  # [S+1] int32, counts kept rows
    logp_old: Tensor | None  # [M] float32
    adv: Tensor  # [S] float32
    weight: Tensor | None  # [M] float32
    sample_id: tuple[str, ...]  # [S]
