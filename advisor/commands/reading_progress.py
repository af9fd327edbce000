"""Shows on a terminal how far large files are read."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHOWN_AFTER_S = 1.0  # a shorter wait needs no bar


@contextmanager
def reading_progress() -> Iterator[Callable[[float], None] | None]:
    """Yields a function that takes the share of the work that is done; None if stderr is no terminal. The bar is removed at the end."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    import time

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("reading the trace"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task, began_s = bar.add_task("", total=1.0), time.monotonic()

    def advance(share: float) -> None:
        if not bar.live.is_started and time.monotonic() - began_s >= SHOWN_AFTER_S and share < 1.0:
            bar.start()
        bar.update(task, completed=share)

    try:
        yield advance
    finally:
        bar.stop()
