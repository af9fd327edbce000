"""The job's output as lines on a screen; `rn50_advisor.advisor.run.launch.output_lines.OutputTail` is one such source."""

from __future__ import annotations

from typing import Protocol

from rn50_advisor.advisor.run.launch.output_lines import NewOutput


class OutputSource(Protocol):
    def lines_since(self, n: int) -> NewOutput:
        """Output after the caller's first `n` lines; called in a worker thread, by one caller."""
