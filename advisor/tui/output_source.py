"""The job's output as lines on a screen, read from its log; the one place that knows how the log's tail counts them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NewLines:
    """What came since a caller knew `n` lines; the last of those may have been overwritten in place since."""

    total: int
    lines: tuple[str, ...] = ()
    rewritten_last: str | None = None


class OutputSource(Protocol):
    def lines_since(self, n: int) -> NewLines:
        """Called in a worker thread; `total` is the number of lines now, the unfinished last one included."""
