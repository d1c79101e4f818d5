"""Held-out evaluation: mean reward over samples, greedy, pass@k; per domain, and per task and difficulty."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from glmv.data.process import Processor
from glmv.data.types import Prompt, Sample
from glmv.model import Glm4v
from glmv.train.config import EvalConfig
from glmv.train.loading import load_model, read_prompts
from glmv.train.progress import Progress
from glmv.train.rollout import generate
from glmv.train.score import Scored, score_group
from glmv.train.tables import EvalRow, Figures, cell_table, domain_table, summary_table


@dataclass(frozen=True)
class _Judged:
    """One prompt with its sampled answers and its greedy answer."""

    prompt: Prompt
    sampled: list[Scored]
    greedy: Scored


def evaluate(
    model: Glm4v, processor: Processor, samples: Sequence[Sample], root: Path, config: EvalConfig, name: str
) -> tuple[EvalRow, list[dict[str, Any]]]:
    """Answer every prompt `group_size` times by sampling and once greedily.

    Args:
        samples: held-out rows with `reward_model`.
        root: the folder that their image paths start from.
        name: of the checkpoint, for the table.

    Returns:
        the row of the table, and one example answer a prompt (for the report).

    Raises:
        ValueError: no samples.
    """
    if not samples:
        raise ValueError("evaluate: samples must hold at least one row, got none")
    judged: list[_Judged] = []
    with Progress(name, len(samples)) as bar:
        for start in range(0, len(samples), config.batch_prompts):
            prompts = [processor.prompt(s, root) for s in samples[start : start + config.batch_prompts]]
            judged += _answer(model, processor, prompts, config, start)
            bar.advance(n=len(prompts))
    row = EvalRow(
        name=name,
        overall=_figures(judged),
        domains=_grouped(judged, lambda s: s.domain),
        cells=_grouped(judged, _cell),
    )
    return row, [_example(j, name, root) for j in judged]


def _answer(
    model: Glm4v, processor: Processor, prompts: Sequence[Prompt], config: EvalConfig, start: int
) -> list[_Judged]:
    greedy_sampling = replace(config.sampling, temperature=0.0)
    seed = config.seed + start
    sampled = generate(model, processor, prompts, config.group_size, config.sampling, seed)
    greedy = generate(model, processor, prompts, 1, greedy_sampling, seed)
    return [
        _Judged(p, score_group(p, s, processor), score_group(p, g, processor)[0])
        for p, s, g in zip(prompts, sampled, greedy, strict=True)
    ]


def _cell(sample: Sample) -> str:
    info = sample.extra_info
    return f"{sample.domain}/{info.get('task', sample.domain)}/{info.get('difficulty', 0)}"


def _grouped(judged: Sequence[_Judged], key: Callable[[Sample], str]) -> dict[str, Figures]:
    groups: dict[str, list[_Judged]] = {}
    for j in judged:
        groups.setdefault(key(j.prompt.sample), []).append(j)
    return {name: _figures(groups[name]) for name in sorted(groups)}


def _figures(judged: Sequence[_Judged]) -> Figures:
    answers = [s for j in judged for s in j.sampled]
    chances = [_chance(j.prompt.sample.extra_info) for j in judged]
    known = [c for c in chances if c is not None]
    return Figures(
        n=len(judged),
        mean=sum(s.reward for s in answers) / len(answers),
        greedy=sum(j.greedy.reward for j in judged) / len(judged),
        best=sum(max(s.reward for s in j.sampled) for j in judged) / len(judged),
        format=sum(s.format_ok for s in answers) / len(answers),
        length=sum(s.completion.tokens.numel() for s in answers) / len(answers),
        chance=sum(known) / len(known) if len(known) == len(judged) else None,
    )


def _chance(info: Mapping[str, Any]) -> float | None:
    chance = info.get("chance")
    return None if chance is None else float(chance)


def _example(judged: _Judged, name: str, root: Path) -> dict[str, Any]:
    sample, shown = judged.prompt.sample, judged.sampled[0]
    frames = [f for video in sample.videos for f in video["frames"]]
    return {
        "phase": "heldout",
        "name": name,
        "domain": sample.domain,
        "task": sample.extra_info.get("task", sample.domain),
        "difficulty": sample.extra_info.get("difficulty", 0),
        "images": [_located(p, root) for p in (*sample.images, *frames)],
        "question": sample.prompt[-1]["content"],
        "response": shown.text,
        "reward": shown.reward,
        "reason": shown.reason,
        "reference": str(sample.reward_model.get("ground_truth")),
    }


def _located(image: str, root: Path) -> str:
    return image if image.startswith("data:") else str((root / image.removeprefix("file://")).resolve())


@dataclass(frozen=True)
class EvalCommand:
    """Evaluate a checkpoint on held-out rows: mean reward, greedy, pass@k, by domain and difficulty."""

    model: str
    """directory with a checkpoint"""
    data: str
    """JSONL or parquet with `reward_model` in every row"""
    output: str | None = None
    """write the figures as JSON"""
    threads: int = 2
    """CPU threads; the sampled answers depend on them, so they are pinned"""
    eval: EvalConfig = field(default_factory=EvalConfig)
    """samples and budgets"""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"config: eval.threads must be >= 1, got {self.threads}")


def evaluate_checkpoint(config: EvalCommand) -> str:
    """Evaluate, print the tables and return the line with the overall figure."""
    torch.set_num_threads(config.threads)
    model, processor = load_model(config.model)
    path = Path(config.data)
    samples = read_prompts(config.data)
    if config.output:
        Path(config.output).parent.mkdir(parents=True, exist_ok=True)  # fails now, not after the evaluation
    row, _ = evaluate(model, processor, samples, path.parent, config.eval, Path(config.model).name)
    console = Console()
    for table in (cell_table([row]), domain_table([row]), summary_table([row], config.eval.group_size)):
        console.print(table)
    if config.output:
        Path(config.output).write_text(json.dumps(asdict(row), indent=1) + "\n", encoding="utf-8")
    return f"mean reward {100 * row.overall.mean:.1f} over {row.overall.n} prompts"
