"""Supervised cold start: `glmv sft --config recipes/sft-tiny.yaml`."""

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from glmv.data import batches, row
from glmv.data.process import Processor
from glmv.data.types import Row, Sample
from glmv.model import Glm4v
from glmv.train.config import SftConfig
from glmv.train.loading import load_model, read_rows
from glmv.train.optim import Optimizer
from glmv.train.progress import Progress
from glmv.train.run import Interrupted, Run, RunState, stop_on_signal
from glmv.train.step import supervised_loss, train_step


@dataclass
class Stage:
    """A model in training with its optimizer: what a checkpoint holds."""

    model: Glm4v
    optimizer: Optimizer
    step: int = 0

    def restore(self, state: RunState) -> None:
        self.model.load_state_dict(state.model)
        self.optimizer.load_state_dict(state.optimizer)
        self.step = state.step

    def state(self, run: Run, curriculum: dict[str, object] | None = None) -> RunState:
        """All that the next step of `run` depends on."""
        return RunState(
            step=self.step,
            model=self.model.state_dict(),
            optimizer=self.optimizer.state_dict(),
            curriculum=curriculum,
            metrics_bytes=run.metrics_bytes(),
            elapsed_s=run.elapsed(),
        )


def sft(config: SftConfig) -> Path:
    """Train a model to answer as the `response` of every row says.

    Writes metrics, checkpoints and, at the end, `<out>/model` in Hugging Face's layout. The same command
    resumes a run that was stopped.

    Args:
        config: the configuration (`--config file.yaml`, or one flag a field).
    """
    torch.set_num_threads(config.threads)
    model, processor = load_model(config.model, config.seed)
    samples = read_rows(config.data)
    run = Run(config.out, "sft", config)
    stage = Stage(model, Optimizer(model, config.optim, config.steps))
    train(stage, processor, samples, Path(config.data).parent, config, run)
    return save_model(stage.model, processor, Path(config.out))


def train(
    stage: Stage, processor: Processor, samples: Sequence[Sample], root: Path, config: SftConfig, run: Run
) -> None:
    """The loop: from the state in `run`, or from the start, to `config.steps`.

    Raises:
        Interrupted: the run was asked to stop; its state is saved.
        ValueError: a sample has no `response`.
    """
    bad = next((s.id for s in samples if not s.response), None)
    if bad is not None:
        raise ValueError(f"sft: every row must have a `response`, {bad} has none")
    if state := run.load():
        stage.restore(state)
    order = batches(samples, config.batch_size, config.seed, stage.step)
    with stop_on_signal() as stopped, Progress(run.phase, config.steps, stage.step) as bar:
        while stage.step < config.steps:
            started = time.perf_counter()
            rows = [supervised_row(sample, processor, root) for sample in next(order)]
            loss = supervised_loss(stage.model, denom=sum(int(r.keep.sum()) for r in rows))
            report = train_step(stage.model, stage.optimizer, rows, loss, config.capacity_tokens, stage.step)
            stage.step += 1
            seconds = time.perf_counter() - started
            metrics = {"loss": report.loss, **report.metrics, "bin_fill": report.bin_fill}
            metrics["train_tokens_per_s"] = report.tokens / seconds
            run.log(stage.step, {**metrics, "micro_steps": report.micro_steps, "time/train": seconds})
            bar.advance(f"loss {report.loss:.3f}")
            checkpoint(run, stage, config.save_every, config.steps, stopped())
    run.close()


def checkpoint(
    run: Run, stage: Stage, every: int, last: int, stop: bool, curriculum: dict[str, object] | None = None
) -> None:
    """Save at every `every` steps, at the end, and before a stop (which raises Interrupted)."""
    if stage.step % every == 0 or stage.step == last or stop:
        run.save(stage.state(run, curriculum))
    if stop:
        run.close()
        raise Interrupted(f"stopped at {run.phase} step {stage.step} of {last}, saved in {run.path}")


def supervised_row(sample: Sample, processor: Processor, root: Path) -> Row:
    """A prompt with its given answer; the answer and its end token are the targets."""
    assert sample.response is not None
    tokens = processor.response_tokens(sample.response)
    return row(processor.prompt(sample, root), tokens, torch.ones(len(tokens), dtype=torch.bool))


def save_model(model: Glm4v, processor: Processor, out: Path) -> Path:
    """Write `<out>/model`: weights, config, tokenizer and processor, readable by transformers.

    The folder appears whole or not at all.
    """
    path, temporary = out / "model", out / "model.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    model.save_pretrained(temporary)
    processor.save(temporary)
    shutil.rmtree(path, ignore_errors=True)
    temporary.rename(path)
    return path
