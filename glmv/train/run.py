"""A run directory: configuration, metrics, checkpoints, and a stop that leaves a run which resumes.

config.yaml     what was asked for; a resumed run must ask for the same
metrics.jsonl   one object a step, each with its phase and step
tensorboard/    the same numbers
state.pt        RunState: everything that the next step depends on, written atomically
model/          weights and processor in Hugging Face's layout, at the end of the stage
"""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import yaml
from torch.utils.tensorboard import SummaryWriter

STOPPING = b"\nstopping after this step (again to stop at once, losing it)\n"


class Interrupted(Exception):
    """The run was asked to stop; its state is saved and the same command goes on from there."""


@dataclass(frozen=True)
class RunState:
    """All that the next step depends on. Step k draws from generators seeded by (seed, k): no RNG state."""

    step: int  # steps done
    model: dict[str, torch.Tensor]
    optimizer: list[dict[str, Any]]
    curriculum: dict[str, Any] | None
    metrics_bytes: int  # length of metrics.jsonl at this step: a resumed run cuts what came after
    elapsed_s: float


class Run:
    """One stage's directory. `phase` names it in the metrics ("sft", "rl", "control")."""

    def __init__(self, path: str | Path, phase: str, config: object):
        self.path = Path(path)
        self.phase = phase
        claim(self.path, config, begun=(self.path / "state.pt").exists())
        self.metrics_path = self.path / "metrics.jsonl"
        self.started = time.monotonic()
        self._board: SummaryWriter | None = None
        self._step = 0

    def log(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append one step to metrics.jsonl and, numbers alone, to TensorBoard (a curve a histogram entry)."""
        record = {"phase": self.phase, "step": step, "time_s": round(self.elapsed(), 3), **metrics}
        with self.metrics_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self._board is None:
            # purge_step hides what an interrupted run had logged beyond its checkpoint
            self._board = SummaryWriter(str(self.path / "tensorboard"), purge_step=step)
        for key, value in metrics.items():
            curves = (
                {f"{key}/{k}": v for k, v in value.items()} if isinstance(value, Mapping) else {key: value}
            )
            for name, number in curves.items():
                if isinstance(number, int | float):
                    self._board.add_scalar(f"{self.phase}/{name}", number, step)

    def lines(self) -> list[dict[str, Any]]:
        """The steps logged so far, as in metrics.jsonl."""
        text = self.metrics_path.read_text(encoding="utf-8") if self.metrics_path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def save(self, state: RunState) -> None:
        """Write state.pt so that a crash at any moment leaves the old or the new one, whole."""
        atomic_save(vars(state), self.path / "state.pt")  # asdict would copy all weights

    def load(self) -> RunState | None:
        """The saved state, with metrics.jsonl cut back to it; None for a fresh run."""
        path = self.path / "state.pt"
        if not path.exists():
            self.metrics_path.write_bytes(b"")
            return None
        state = RunState(**torch.load(path, weights_only=True))
        os.truncate(self.metrics_path, state.metrics_bytes)
        self.started = time.monotonic() - state.elapsed_s
        return state

    def metrics_bytes(self) -> int:
        return self.metrics_path.stat().st_size if self.metrics_path.exists() else 0

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


def claim(path: Path, config: object, begun: bool = True) -> None:
    """Make `path` the directory of a run with this configuration (a dataclass), kept in config.yaml.

    A run of the same kind that has not `begun` to save anything gives way.

    Raises:
        ValueError: a run with another configuration is there; the message names what differs.
    """
    path.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(asdict(config), sort_keys=False)  # type: ignore[call-overload]
    saved_path = path / "config.yaml"
    if saved_path.exists():
        saved, asked = yaml.safe_load(saved_path.read_text(encoding="utf-8")), yaml.safe_load(text)
        saved = saved if isinstance(saved, dict) else {}
        if saved != asked and (begun or saved.keys() != asked.keys()):
            keys = _differences(saved, asked)
            raise ValueError(
                f"{path}: a run with another configuration is there (differs in {', '.join(keys)}); "
                "give another `out`, or the same configuration to resume"
            )
    saved_path.write_text(text, encoding="utf-8")


def atomic_save(value: object, path: Path) -> None:
    """torch.save to a temporary name, flush to disk, rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        torch.save(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM set a flag that the loop reads between steps; a second one stops at once."""
    asked: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # only the main thread receives signals
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        os.write(2, STOPPING)  # print may not be entered again from within a print

    old = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _differences(saved: Mapping[str, Any], asked: Mapping[str, Any], prefix: str = "") -> list[str]:
    keys: list[str] = []
    for key in sorted({*saved, *asked}):
        a, b = saved.get(key), asked.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            keys += _differences(a, b, f"{prefix}{key}.")
        elif a != b:
            keys.append(f"{prefix}{key}: {a!r} there, {b!r} asked")
    return keys
