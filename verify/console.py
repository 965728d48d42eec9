"""What a person sees on the terminal: progress on standard error, tables on standard output.

Guarantees: progress never mixes with output, and is silent when standard error is not a terminal (one line a
stage then). Does not: decide anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Stage:
    """One bar of progress: call `advance()` a unit of work, `say(text)` to change its label."""

    def __init__(self, progress: Any, task: Any) -> None:
        self._progress, self._task = progress, task

    def advance(self, units: float = 1) -> None:
        if self._progress is not None:
            self._progress.advance(self._task, units)

    def say(self, text: str) -> None:
        if self._progress is not None:
            self._progress.update(self._task, description=text)


@contextmanager
def stage(title: str, total: float | None = None, *, quiet: bool = False) -> Iterator[Stage]:
    """Show progress of one stage while the block runs."""
    if quiet:
        yield Stage(None, None)
        return
    if not sys.stderr.isatty():
        print(f"{title} ...", file=sys.stderr, flush=True)
        yield Stage(None, None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield Stage(progress, progress.add_task(title, total=total))


def table(title: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for name in header:
        shown.add_column(name, overflow="fold")
    for row in rows:
        # As Text: square brackets in a cell are what they are, not rich's markup.
        shown.add_row(*(Text(str(cell)) for cell in row))
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(shown)
