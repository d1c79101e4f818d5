"""The figures of an evaluation and the tables that show them."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table


@dataclass(frozen=True)
class Figures:
    """Shares in 0..1 over n prompts; `best` is pass@k for binary rewards (the best of the k samples)."""

    n: int
    mean: float  # mean reward of the samples
    greedy: float
    best: float
    format: float  # share of samples whose format is valid
    length: float  # tokens an answer
    chance: float | None  # the reward of an answer without looking; None if the set does not state it


@dataclass(frozen=True)
class EvalRow:
    """One evaluated checkpoint."""

    name: str
    overall: Figures
    domains: dict[str, Figures]
    cells: dict[str, Figures]  # "domain/task/difficulty"


def summary_table(rows: Sequence[EvalRow], group_size: int) -> Table:
    """One row a checkpoint: overall figures."""
    n = rows[0].overall.n
    table = _table(f"held-out: {n} prompts x {group_size} samples, in percent")
    table.add_column("checkpoint", no_wrap=True)
    for column in ("mean reward", "greedy", f"pass@{group_size}", "format valid", "tokens"):
        table.add_column(column, justify="right")
    for row in rows:
        f = row.overall
        cells = (
            _percent(f.mean),
            _percent(f.greedy),
            _percent(f.best),
            _percent(f.format),
            f"{f.length:.1f}",
        )
        table.add_row(row.name, *cells)
    return table


def domain_table(rows: Sequence[EvalRow], difference: tuple[str, str] | None = None) -> Table:
    """One row a domain: mean reward (greedy) of every checkpoint, and the difference of two of them."""
    table = _table("mean reward (greedy) by domain, in percent")
    _columns(table, "domain", rows, difference)
    by_name = {row.name: row for row in rows}
    for domain, first in rows[0].domains.items():
        figures = {row.name: row.domains[domain] for row in rows}
        table.add_row(*_line(domain, first, figures, difference))
    table.add_section()
    figures = {name: row.overall for name, row in by_name.items()}
    table.add_row(*_line("all", rows[0].overall, figures, difference))
    return table


def cell_table(rows: Sequence[EvalRow], difference: tuple[str, str] | None = None) -> Table:
    """One row a task and difficulty. Few prompts a cell: read differences below about 8 points as noise."""
    table = _table("mean reward (greedy) by task and difficulty, in percent")
    _columns(table, "task", rows, difference)
    previous = ""
    for cell, first in rows[0].cells.items():
        task = cell.rpartition("/")[0]
        if previous and task != previous:
            table.add_section()
        previous = task
        table.add_row(*_line(cell, first, {row.name: row.cells[cell] for row in rows}, difference))
    return table


def _table(title: str) -> Table:
    # narrow enough for a terminal of 80 columns
    return Table(
        title=title,
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )


def _columns(table: Table, first: str, rows: Sequence[EvalRow], difference: tuple[str, str] | None) -> None:
    table.add_column(first, no_wrap=True)
    for name in ("n", "chance", *(row.name for row in rows)):
        table.add_column(name, justify="right", no_wrap=True)
    if difference:
        table.add_column("gain", justify="right", no_wrap=True)
        table.caption = f"n prompts a row; gain: {difference[1]} - {difference[0]}"


def _line(
    label: str, first: Figures, figures: dict[str, Figures], difference: tuple[str, str] | None
) -> list[str]:
    chance = "" if first.chance is None else _percent(first.chance)
    line = [label, str(first.n), chance]
    line += [f"{_percent(f.mean)} ({_percent(f.greedy, 0)})" for f in figures.values()]
    if difference:
        delta = 100 * (figures[difference[1]].mean - figures[difference[0]].mean)
        line.append(f"{delta:+.1f}")
    return line


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"
