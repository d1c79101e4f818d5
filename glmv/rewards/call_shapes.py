"""The call shapes of other trainers: TRL's reward functions and verl's `compute_score`.

GLM-V's own, `get_reward`, is a method of RewardSystem.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from glmv.rewards.system import RewardSystem, same_length


class TrlReward:
    """`f(prompts, completions, **columns) -> list[float | None]`; None where a judge gave no verdict.

    Columns that are read: `data_source` or `task`; `ground_truth`, `solution` or `reward_model` (verl's);
    `completion_ids` if `decode` is given. TRL strips special tokens from the completions, and the box markers
    of GLM are special tokens: pass `decode=tokenizer.decode`.
    """

    def __init__(self, system: RewardSystem, decode: Callable[[list[int]], str] | None = None) -> None:
        self.system, self.decode = system, decode
        self.__name__ = "glmv_reward"

    def __call__(
        self, prompts: Sequence[Any], completions: Sequence[Any], **columns: Any
    ) -> list[float | None]:
        sources = _column(columns, "data_source", "task", default=["default"] * len(completions))
        truths = _column(columns, "ground_truth", "solution", "reward_model")
        ids = columns.get("completion_ids")
        if self.decode is not None and ids is not None:
            texts = [self.decode(row) for row in ids]
        else:
            texts = [message_text(completion) for completion in completions]
        lengths = [None] * len(texts) if ids is None else [len(row) for row in ids]
        same_length(completions=texts, sources=sources, ground_truth=truths, completion_ids=lengths)
        rows = zip(texts, truths, sources, map(message_text, prompts), lengths, strict=True)
        items = [self.system.item(*row) for row in rows]
        return [None if reward.masked else reward.total for reward in self.system.rewards(items)]


@lru_cache(maxsize=8)
def _system(config: str) -> RewardSystem:
    return RewardSystem(config)


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    config: str = "rewards.yaml",
) -> dict[str, Any]:
    """For verl's `custom_reward_function`; `config` comes from its `reward_kwargs`. A process keeps its
    systems: their workers start once."""
    return _system(config).compute_score(data_source, solution_str, ground_truth, extra_info)


def message_text(completion: Any) -> str:
    """A text, or the text of the messages of a chat."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Mapping):
        return message_text(completion.get("content", completion.get("text", "")))
    return "".join(message_text(part) for part in completion)


def _column(columns: Mapping[str, Any], *names: str, default: list[Any] | None = None) -> list[Any]:
    for name in names:
        if columns.get(name) is not None:
            return list(columns[name])
    if default is None:
        raise ValueError(f"TRL gave no column named {' or '.join(names)}; it gave {', '.join(columns)}")
    return default
