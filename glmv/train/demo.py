"""The main job, end to end: `glmv demo`.

Environment, a table of the ops, then a small GLM-4.1V-shaped model learns built-in visual tasks: supervised
cold start, RL with curriculum sampling, and a control that takes as many further supervised steps.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from glmv import bench, env
from glmv.data import read
from glmv.data.tasks import make_demo_sets
from glmv.train import rl, sft
from glmv.train.config import EvalConfig, RlConfig, SftConfig
from glmv.train.evaluate import evaluate
from glmv.train.loading import load_model
from glmv.train.optim import Optimizer
from glmv.train.progress import Progress
from glmv.train.report import write_report
from glmv.train.run import Run, claim
from glmv.train.tables import EvalRow, Figures, cell_table, domain_table, summary_table

AFTER_SFT, CONTROL, AFTER_RL = "after SFT", "after more SFT", "after RL"

NOTES = (
    "RL starts early on purpose: the gain is largely sharpening (samples move towards the greedy answer).",
    f"'{CONTROL}' is the control: as many further supervised steps on the same cold-start set as RL took "
    "optimizer steps. This demo does not claim that RL beats more supervised training.",
    "Cells of one task and difficulty hold few prompts: read differences below about 8 points as noise.",
    "Held-out digits are the tail of scikit-learn's set, held-out bars the last 30 % of each series, "
    "held-out photographs another part of each picture, and held-out scenes are new drawings.",
)


@dataclass(frozen=True)
class DemoConfig:
    """The main job, end to end. The demo sets data, out, model, seed and threads of its stages itself."""

    out: str = "runs/demo"
    """directory of data, runs and report"""
    seed: int = 0
    """of the data, the random start, the order and the sampling"""
    threads: int = 2
    """CPU threads; the result depends on them, so they are pinned"""
    sft_rows: int = 9600
    """rows of the cold-start set"""
    rl_prompts: int = 4800
    """prompts that RL draws from"""
    heldout: int = 480
    """held-out prompts"""
    bench: bool = True
    """print the table of the ops first"""
    sft: SftConfig = field(default_factory=lambda: SftConfig(data="", out="", steps=200))
    """supervised cold start"""
    rl: RlConfig = field(default_factory=lambda: RlConfig(data="", out="", model="", steps=160))
    """reinforcement learning"""
    eval: EvalConfig = field(default_factory=EvalConfig)
    """held-out evaluation"""


def demo(config: DemoConfig) -> Path:
    """Run the main job and print the final table; returns the path of the HTML report.

    The same command resumes a demo that was stopped. Where a finished one is there, it starts a new one
    beside it: runs/demo-2 after runs/demo.

    Args:
        config: the configuration (`--config file.yaml`, or one flag a field).
    """
    console = Console()
    out = unfinished(Path(config.out))
    claim(out, replace(config, bench=True))  # the table of the ops is no part of the run
    console.print(f"run directory: {out}")
    torch.set_num_threads(config.threads)
    env.report()
    if config.bench:
        bench.run(suite="smoke")
    stages = Stages(config, out)
    data = stages.data()
    stages.sft(data)
    stages.rl(data)
    stages.control(data)
    rows = [stages.rows[name] for name in (AFTER_SFT, CONTROL, AFTER_RL)]
    difference = (AFTER_SFT, AFTER_RL)
    console.print(cell_table(rows, difference))
    console.print(domain_table(rows, difference))
    console.print(summary_table(rows, config.eval.group_size))
    for note in NOTES:
        console.print(f"- {note}", style="dim")
    report = stages.report()
    console.print(f"report: {report}")
    return report


def unfinished(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... that holds no finished demo."""
    candidate, number = path, 1
    while (candidate / "report.html").exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate


class Stages:
    """The stages of one demo directory; one whose result is there is skipped, so a stopped demo goes on."""

    def __init__(self, config: DemoConfig, out: Path):
        self.out = out
        self.config = config
        data, seed, threads = out / "data", config.seed, config.threads
        self.sft_config = replace(
            config.sft, data=str(data / "sft.jsonl"), out=str(out / "sft"), seed=seed, threads=threads
        )
        self.rl_config = replace(
            config.rl,
            data=str(data / "rl.jsonl"),
            out=str(out / "rl"),
            model=str(out / "sft" / "model"),
            check_data=str(data / "heldout.jsonl"),
            seed=seed,
            threads=threads,
        )
        steps = config.sft.steps + config.rl.steps * config.rl.minibatches
        self.control_config = replace(self.sft_config, out=str(out / "control"), steps=steps)
        self.rows: dict[str, EvalRow] = {}
        self.examples: list[dict[str, Any]] = []
        self._load_rows()

    def data(self) -> Path:
        """Make the three sets, once."""
        path = self.out / "data"
        if not (path / "heldout.jsonl").exists():
            c = self.config
            total = c.sft_rows + c.rl_prompts + c.heldout
            with Progress("data", total) as bar:
                sizes = {"sft": c.sft_rows, "rl": c.rl_prompts, "heldout": c.heldout}
                make_demo_sets(path, seed=c.seed, progress=bar.advance, **sizes)
        return path

    def sft(self, data: Path) -> None:
        if not self._done("sft"):
            sft.sft(self.sft_config)
        self._evaluate(AFTER_SFT, "sft", data)

    def rl(self, data: Path) -> None:
        if not self._done("rl"):
            rl.rl(self.rl_config)
        self._evaluate(AFTER_RL, "rl", data)

    def control(self, data: Path) -> None:
        """Supervised steps from where the cold start ended, optimizer state included."""
        if not self._done("control"):
            c = self.control_config
            model, processor = load_model(c.model, c.seed)
            stage = sft.Stage(model, Optimizer(model, c.optim, c.steps))
            cold_start = Run(self.out / "sft", "sft", self.sft_config).load()
            assert cold_start is not None
            stage.restore(cold_start)
            run = Run(c.out, "control", c)
            sft.train(stage, processor, read(c.data), Path(c.data).parent, c, run)
            sft.save_model(stage.model, processor, Path(c.out))
        self._evaluate(CONTROL, "control", data)

    def report(self) -> Path:
        """Gather what the stages wrote and render the report."""
        metrics = [
            (self.out / s / "metrics.jsonl").read_text(encoding="utf-8") for s in ("sft", "rl", "control")
        ]
        (self.out / "metrics.jsonl").write_text("".join(metrics), encoding="utf-8")
        lines = [json.dumps(example) + "\n" for example in self.examples]
        (self.out / "samples.jsonl").write_text("".join(lines), encoding="utf-8")
        (self.out / "env.json").write_text(json.dumps(env.collect(), indent=1), encoding="utf-8")
        return write_report(self.out)

    def _done(self, stage: str) -> bool:
        return (self.out / stage / "model" / "config.json").exists()

    def _evaluate(self, name: str, stage: str, data: Path) -> None:
        if name in self.rows:
            return
        model, processor = load_model(str(self.out / stage / "model"))
        samples = read(data / "heldout.jsonl")
        self.rows[name], examples = evaluate(model, processor, samples, data, self.config.eval, name)
        self.examples += examples
        self._save_rows()

    def _save_rows(self) -> None:
        record = {
            "rows": [asdict(row) for row in self.rows.values()],
            "examples": self.examples,
            "group_size": self.config.eval.group_size,
            "prompts": self.config.heldout,
            "notes": list(NOTES),
        }
        temporary = self.out / "eval.json.tmp"
        temporary.write_text(json.dumps(record), encoding="utf-8")
        temporary.replace(self.out / "eval.json")

    def _load_rows(self) -> None:
        path = self.out / "eval.json"
        if not path.exists():
            return
        record = json.loads(path.read_text(encoding="utf-8"))
        self.examples = record["examples"]
        self.rows = {row["name"]: eval_row(row) for row in record["rows"]}


def eval_row(record: dict[str, Any]) -> EvalRow:
    """An EvalRow from its JSON form."""
    return EvalRow(
        name=record["name"],
        overall=Figures(**record["overall"]),
        domains={name: Figures(**f) for name, f in record["domains"].items()},
        cells={name: Figures(**f) for name, f in record["cells"].items()},
    )
