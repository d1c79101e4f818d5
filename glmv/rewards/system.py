"""`RewardSystem`: whole batches of responses, scored in parallel, by the verifier of each data source.

The verifiers run in worker processes with a time and a memory limit. A verifier that needs a judge hands
its prompt back; the prompts of a batch are asked together, and the verifier runs again with the replies.
So the number of workers changes neither the results nor how many requests a judge gets at once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from glmv.rewards.judge import blocks
from glmv.rewards.judge_rule import RuleJudge
from glmv.rewards.pool import Pool, TaskDied, TaskError
from glmv.rewards.reward_model import reward_model
from glmv.rewards.system_config import SystemConfig, load, parse
from glmv.rewards.system_worker import Ask, Item, Replies, broken, reference_of, reward_of
from glmv.rewards.types import Judge, JudgeError, Reward

MAX_ROUNDS = 8  # how often one response may need a judge


class RewardSystem:
    """Made from a YAML file, a mapping, or a SystemConfig. Close it, or use it with `with`.

    `judge` replaces the judge of the config by any callable. A system can be pickled: the copy starts
    workers and connections of its own.
    """

    def __init__(
        self, config: str | Path | Mapping[str, Any] | SystemConfig, judge: Judge | None = None
    ) -> None:
        if isinstance(config, str | Path):
            config = load(config)
        self.config = config if isinstance(config, SystemConfig) else parse(config)
        self._given = judge
        self.judge: Judge | None = judge or _judge_of(self.config)
        self.reward_model = (
            None if self.config.reward_model is None else reward_model(self.config.reward_model)
        )
        self._pool = Pool(self.config.workers, self.config.seconds, self.config.memory_mb)

    @classmethod
    def from_yaml(cls, path: str | Path) -> "RewardSystem":
        return cls(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return RewardSystem, (self.config, self._given)

    def __enter__(self) -> "RewardSystem":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the workers and the connections; the system can be used again."""
        self._pool.close()
        close = getattr(self.judge, "close", None)
        if close is not None and self._given is None:
            close()
        if self.reward_model is not None:
            self.reward_model.close()

    def item(
        self, response: str, truth: Any, source: str, prompt: str = "", length: int | None = None
    ) -> Item:
        """`truth` is a reference, or a `reward_model` of verl: {"ground_truth": ..., "options": {...}}."""
        rule = self.config.rule(source)
        if isinstance(truth, Mapping) and "ground_truth" in truth:
            rule = replace(rule, options={**rule.options, **(truth.get("options") or {})})
            truth = truth["ground_truth"]
        if self.reward_model is not None and rule.options.get("verifiable", True) is False:
            rule = replace(rule, options={**rule.options, "judge_scale": "vero_1_10"})  # see on_scale
        return Item(response, reference_of(rule.kind, truth), rule, prompt, length)

    def rewards(self, items: Sequence[Item]) -> list[Reward]:
        """The reward of every item, in order. A response that breaks a limit gets 0 with reason "timeout"."""
        replies: list[tuple[Replies, ...]] = [()] * len(items)
        rewards: list[Reward] = [broken(TaskDied("no verdict"))] * len(items)
        open_items = list(range(len(items)))
        for _ in range(MAX_ROUNDS):
            tasks = [(items[i], self._judge_name(items[i]), replies[i]) for i in open_items]
            asked: list[tuple[int, str]] = []
            for i, result in zip(open_items, self._pool.map(reward_of, tasks), strict=True):
                if isinstance(result, Ask):
                    asked.append((i, result.prompt))
                else:
                    rewards[i] = broken(result) if isinstance(result, TaskError) else result
            if not asked:
                break
            for i, reply in self._replies([(i, items[i], prompt) for i, prompt in asked]):
                replies[i] = (*replies[i], reply)
            open_items = [i for i, _ in asked]
        return rewards

    def _judge_name(self, item: Item) -> str | None:
        if self.reward_model is not None and item.open_ended:
            return "reward_model"
        return None if self.judge is None else getattr(self.judge, "name", "judge")

    def _replies(self, asked: Sequence[tuple[int, Item, str]]) -> Iterator[tuple[int, Replies]]:
        """The answer to each question, from the judge or from the reward model."""
        judged = asked
        if self.reward_model is not None:
            judged = [question for question in asked if not question[1].open_ended]
            scored = [question for question in asked if question[1].open_ended]
            found = [blocks(prompt) for _, _, prompt in scored]
            candidates = ["" if text is None else text.candidate for text in found]
            values = self.reward_model([item.prompt for _, item, _ in scored], candidates)
            for (i, _, _), value in zip(scored, values, strict=True):
                yield i, value if isinstance(value, JudgeError) else [on_scale(value)]
        if judged:
            replies = self._ask([prompt for _, _, prompt in judged])
            yield from zip([i for i, _, _ in judged], replies, strict=True)

    def _ask(self, prompts: Sequence[str]) -> list[Replies]:
        assert self.judge is not None
        if hasattr(self.judge, "ask_many"):
            replies: list[Replies] = self.judge.ask_many(prompts)
            return replies
        return [_reply(self.judge, prompt) for prompt in prompts]

    def number(self, reward: Reward) -> float:
        return self.config.masked if reward.masked else reward.total

    def get_reward(
        self,
        prompts: Sequence[str] | str,
        answers: Sequence[str] | str,
        gt_answers: Sequence[Any] | str,
        datasources: Sequence[str] | str | None = None,
        *,
        uuids: Sequence[str] | str | None = None,
        image_files: Sequence[str] | str | None = None,
        answer_lengths: Sequence[int] | None = None,
    ) -> list[float]:
        """The call of GLM-V's `glmv_reward`. A ground truth may stand in a box, as there, or alone.

        Data sources may be mixed; without any, all are "default". `answer_lengths` in tokens; no verifier
        reads `uuids` or `image_files`, which are accepted so that calls written for GLM-V work.
        """
        questions, texts, truths = _list(prompts), _list(answers), _list(gt_answers)
        sources = ["default"] * len(texts) if datasources is None else _list(datasources)
        if len(sources) == 1:
            sources = sources * len(texts)
        lengths = [None] * len(texts) if answer_lengths is None else list(answer_lengths)
        same_length(
            prompts=questions, answers=texts, gt_answers=truths, datasources=sources, answer_lengths=lengths
        )
        rows = zip(texts, truths, sources, questions, lengths, strict=True)
        return [self.number(reward) for reward in self.rewards([self.item(*row) for row in rows])]

    def compute_score(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """verl's call for one response: `score` is the total, the rest becomes metrics.

        `extra_info["response_length"]`, in tokens, is needed for Vero's overlong penalty.
        """
        length = (extra_info or {}).get("response_length")
        reward = self.rewards([self.item(solution_str, ground_truth, data_source, length=length)])[0]
        parts = {name: part.value for name, part in reward.parts.items()}
        form = parts.get("format")
        return {
            "score": self.number(reward),
            "acc": self.config.masked if parts.get("accuracy") is None else parts["accuracy"],
            "format": 1.0 if form is None else form,
            "masked": float(reward.masked),
            "reason": reward.reason,
        }


def on_scale(value: float) -> str:
    """A value in [0, 1] as a reply of a judge on the scale from 1 to 10."""
    return f"{1 + 9 * value:.6f}"


def _judge_of(config: SystemConfig) -> Judge | None:
    if isinstance(config.judge, str):
        return RuleJudge() if config.judge == "rule" else None
    from glmv.rewards.judge_client import JudgeClient  # needs httpx

    return JudgeClient(config.judge)


def _reply(judge: Judge, prompt: str) -> Replies:
    try:
        reply = judge(prompt)
    except JudgeError as error:
        return error
    except OSError as error:
        return JudgeError(str(error))
    return [reply] if isinstance(reply, str) else list(reply)


def _list(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def same_length(**lists: list[Any]) -> None:
    """Raises ValueError that names the lengths."""
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{n} {name}" for name, n in lengths.items())
        raise ValueError(f"as many of each are needed, got {shown}")
