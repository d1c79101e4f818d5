"""A result as a table on the terminal."""

import json
from pathlib import Path
from typing import Any

COLUMNS = ("", "ms", "x eager", "machine", "rate", "error", "")
NOTES = """\
x eager  time of eager PyTorch / time, the median over rounds that ran all of them
machine  speed as a share of a copy of as many bytes (GB/s) or a matrix product of as much work (GFLOP/s)
error    against fp64, relative to the largest value"""


def table(path: str) -> None:
    """Print the result in the JSON file `path`."""
    show(json.loads(Path(path).read_text()))


def show(data: dict[str, Any]) -> None:
    """Print a result, in colour on a terminal if rich is installed."""
    text = render(data)
    try:
        from rich.console import Console
        from rich.text import Text
    except ImportError:
        print(text)
        return
    styled = Text(text)
    styled.highlight_regex(r"(?m)^\w+/.*$", "bold cyan")
    styled.highlight_regex(r"(?m)^  eager .*$", "dim")
    styled.highlight_regex(r"(?m)^.*WRONG$", "bold red")
    Console(highlight=False, soft_wrap=True).print(styled)


def render(data: dict[str, Any]) -> str:
    """The result as text: a line per case, under it a line per implementation."""
    host, rows = data["host"], data["cases"]
    torch_version = data["env"]["torch"]["version"]
    lines = _aligned([COLUMNS, *map(_cells, rows)])
    out = [
        f"{host['gpu'] or host['cpu']['model']}, {host['threads']} threads, torch {torch_version}",
        lines[0],
    ]
    for i, row in enumerate(rows):
        if i == 0 or row["id"] != rows[i - 1]["id"]:
            out.append(row["id"])
        out.append(lines[i + 1])
    reasons = sorted({f"left out: {s['impl']}, {s['reason']}" for s in data["skipped"]})
    return "\n".join([*out, "", NOTES, *reasons])


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    machine = next(name for name in row["ratio"] if name != "eager")
    rate = f"{row['gb_per_s']:.1f} GB/s" if machine == "copy" else f"{row['gflop_per_s']:.0f} GFLOP/s"
    return (
        f"  {row['impl']}",
        f"{row['ms']['p50']:.2f}",
        f"{row['ratio']['eager']['p50']:.2f}",
        f"{100 * row['ratio'][machine]['p50']:.0f} %",
        rate,
        f"{row['max_rel_err']:.0e}",
        "" if row["ok"] else "WRONG",
    )


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell; names to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
