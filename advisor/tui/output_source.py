"""The job's output as lines on a screen; `advisor.run.output.OutputTail` is one such source."""

from __future__ import annotations

from typing import Protocol

from advisor.run.output import NewOutput


class OutputSource(Protocol):
    def lines_since(self, n: int) -> NewOutput:
        """What came since the caller knew `n` lines; called in a worker thread, by one caller."""
