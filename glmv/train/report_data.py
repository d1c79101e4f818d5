"""What a report is made of: the files of a run directory, each of which may still be missing."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

RESULT = "after RL"  # the checkpoint that is shown last, whenever it was evaluated

Record = Mapping[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class RunData:
    """The content of a run directory."""

    path: Path
    metrics: tuple[Record, ...]  # metrics.jsonl: one object a step, with its `phase`
    evaluation: Record  # eval.json: rows, group_size, prompts, notes
    samples: tuple[Record, ...]  # samples.jsonl: answers with question, images and verdict
    config: str  # config.yaml, as it stands
    environment: Record  # env.json

    @property
    def rows(self) -> list[Record]:
        """Evaluated checkpoints: baseline first, the result of RL last, what it is compared with between."""
        return sorted(self.evaluation.get("rows", ()), key=lambda row: row.get("name") == RESULT)

    @property
    def answers(self) -> list[Record]:
        """The samples, those of one question in the order of `rows`."""
        return sorted(self.samples, key=lambda sample: sample.get("name") == RESULT)

    def phase(self, *names: str) -> list[Record]:
        return [record for record in self.metrics if record.get("phase") in names]


def read_run(path: Path) -> RunData:
    """Read what is there. Raises ValueError for no directory, or for a broken line (by file and number)."""
    if not path.is_dir():
        raise ValueError(f"write_report: run_dir must be a directory, got {path}")
    config = path / "config.yaml"
    return RunData(
        path=path,
        metrics=tuple(_lines(path / "metrics.jsonl")),
        evaluation=_object(path / "eval.json"),
        samples=tuple(_lines(path / "samples.jsonl")),
        config=config.read_text(encoding="utf-8") if config.exists() else "",
        environment=_object(path / "env.json"),
    )


def points(records: Sequence[Record], key: str) -> Points:
    """(step, value) of every step that has a finite value of `key`."""
    found = [(record.get("step", i), record.get(key)) for i, record in enumerate(records)]
    return [(float(step), float(value)) for step, value in found if is_number(step) and is_number(value)]


def domains(records: Sequence[Record], prefix: str) -> list[str]:
    """The names after `prefix/` in the keys of any step, sorted."""
    return sorted(
        {key.removeprefix(prefix + "/") for r in records for key in r if key.startswith(prefix + "/")}
    )


def is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _lines(path: Path) -> list[Record]:
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number == len(lines):
                break  # a run that is going on, or was killed, may be in the middle of its last line
            raise ValueError(f"{path.name}:{number}: {error.msg}") from error
    return found


def _object(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
