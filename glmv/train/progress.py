"""A progress bar for long work: rich in a terminal, one line every tenth otherwise."""

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress


class Progress:
    """`with Progress("sft", total, done) as bar: bar.advance("loss 1.2")`."""

    def __init__(self, name: str, total: int, done: int = 0):
        self.name, self.total, self.done = name, total, done
        self.started = time.monotonic()
        self.bar = RichProgress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=32),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(),
            disable=not sys.stdout.isatty(),
        )
        self.task = self.bar.add_task(name, total=total, completed=done, note="")

    def advance(self, note: str = "", n: int = 1) -> None:
        before, self.done = self.done, self.done + n
        self.bar.update(self.task, advance=n, note=note)
        if self.bar.disable and (self.done * 10) // self.total > (before * 10) // self.total:
            seconds = time.monotonic() - self.started
            print(f"{self.name:<18} {self.done}/{self.total}  {seconds:5.0f} s  {note}", flush=True)

    def __enter__(self) -> "Progress":
        self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.bar.stop()
