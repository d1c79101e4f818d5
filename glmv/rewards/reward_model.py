"""Reward models for open-ended data: a scoring endpoint, or a Hugging Face checkpoint with one label.

Both give one raw number for a question and an answer, which a stated normalisation maps to [0, 1].
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch

from glmv.rewards.judge_config import Endpoint, JudgeConfig
from glmv.rewards.types import JudgeError

# The raw score of each (question, answer) in [0, 1], or why there is none.
Values = list[float | JudgeError]


class RewardModel(Protocol):
    def __call__(self, questions: Sequence[str], answers: Sequence[str]) -> Values: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Normalisation:
    """`kind` sigmoid: 1 / (1 + exp(-(x - center) / width)), for the logits of a Bradley-Terry model.
    `kind` linear: (x - low) / (high - low), cut to [0, 1], for a scale with ends."""

    kind: str = "sigmoid"
    center: float = 0.0
    width: float = 1.0
    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in ("sigmoid", "linear") or self.width <= 0 or self.low >= self.high:
            raise ValueError(f"normalisation: sigmoid with width > 0 or linear with low < high, got {self}")

    def __call__(self, raw: float) -> float | JudgeError:
        """A raw score that is not finite is no score."""
        if not math.isfinite(raw):
            return JudgeError(f"the reward model gave {raw}")
        if self.kind == "linear":
            return min(1.0, max(0.0, (raw - self.low) / (self.high - self.low)))
        return 0.5 * (1.0 + math.tanh(0.5 * (raw - self.center) / self.width))


class EndpointReward:
    """A server of reward models with the interface of vLLM's `/pooling`: messages in, one number out.

    Read from the reply: `data[0].score`, or the last number of `data[0].data`. The requests are bounded,
    repeated and given up like those of a judge.
    """

    def __init__(self, config: JudgeConfig, normalisation: Normalisation) -> None:
        from glmv.rewards.judge_client import JudgeClient  # needs httpx
        from glmv.rewards.judge_http import pooling_request, read_score

        self._client = JudgeClient(config, request=pooling_request, read=read_score)
        self._normalise = normalisation

    def __call__(self, questions: Sequence[str], answers: Sequence[str]) -> Values:
        prompts = [
            json.dumps([question, answer]) for question, answer in zip(questions, answers, strict=True)
        ]
        return [
            reply if isinstance(reply, JudgeError) else self._normalise(float(reply[0]))
            for reply in self._client.ask_many(prompts)
        ]

    def close(self) -> None:
        self._client.close()


class CheckpointReward:
    """A sequence-classification checkpoint with one label, on any device, in batches.

    The text is the chat template of its tokenizer if it has one, else the pair (question, answer). An answer
    that does not fit gets 0: what is cut off would go unread.
    """

    def __init__(self, path: str, normalisation: Normalisation, batch: int = 8, device: str = "cpu") -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self._tokenizer = AutoTokenizer.from_pretrained(path)
        self._model = AutoModelForSequenceClassification.from_pretrained(path).eval().to(device)
        labels = self._model.config.num_labels
        if labels != 1:
            raise ValueError(f"reward model {path}: one label is needed, it has {labels}")
        self._normalise, self._batch, self._device = normalisation, batch, device
        if self._tokenizer.pad_token_id is None:
            self._tokenizer.pad_token = self._tokenizer.eos_token
        self._model.config.pad_token_id = self._tokenizer.pad_token_id
        positions = getattr(self._model.config, "max_position_embeddings", None)
        self._longest = positions or self._tokenizer.model_max_length

    def __call__(self, questions: Sequence[str], answers: Sequence[str]) -> Values:
        tokens = [self._encode(*pair) for pair in zip(questions, answers, strict=True)]
        values: Values = [0.0] * len(tokens)
        fitting = [i for i, ids in enumerate(tokens) if len(ids) <= self._longest]
        for start in range(0, len(fitting), self._batch):
            chosen = fitting[start : start + self._batch]
            for i, raw in zip(chosen, self._raw([tokens[i] for i in chosen]), strict=True):
                values[i] = self._normalise(raw)
        return values

    def close(self) -> None:
        """Nothing is open."""

    def _encode(self, question: str, answer: str) -> list[int]:
        if self._tokenizer.chat_template is None:
            encoded: Any = self._tokenizer(question, answer)
        else:
            chat = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
            encoded = self._tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True)
        return list(encoded["input_ids"])

    @torch.no_grad()
    def _raw(self, rows: list[list[int]]) -> list[float]:
        padded = self._tokenizer.pad({"input_ids": rows}, return_tensors="pt").to(self._device)
        logits = self._model(input_ids=padded["input_ids"], attention_mask=padded["attention_mask"]).logits
        return [float(value) for value in logits.float().squeeze(-1)]


def reward_model(config: Mapping[str, Any]) -> RewardModel:
    """From a mapping: `checkpoint` (folder, with `batch`, `device`) or `url` and `model` (with `key` and the
    settings of a JudgeConfig); `normalise` holds the fields of Normalisation."""
    rest = dict(config)
    normalisation = Normalisation(**rest.pop("normalise", {}))
    if "checkpoint" in rest:
        return CheckpointReward(rest.pop("checkpoint"), normalisation, **rest)
    endpoint = {f.name: rest.pop(f.name) for f in fields(Endpoint) if f.name in rest}
    return EndpointReward(JudgeConfig((Endpoint(**endpoint),), **rest), normalisation)
