"""One line on what keeps the screen from showing the job as it is: a report that could not be made, or nothing new for long."""

from __future__ import annotations

import time

from textual.widgets import Static

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.quantities import clock
from rn50_advisor.advisor.tui.styles.drawing import harmless

_SILENT_S = 10.0  # a running job is recorded every second


class Trouble(Static):
    """Hidden while there is none. What is said stands until the next report comes in."""

    def __init__(self, *, id: str | None = None, replayed: bool = False) -> None:
        super().__init__(id=id, markup=False)
        self._replayed = replayed
        self._report: Report | None = None
        self._heard_s = time.monotonic()
        self._said = ""

    def tell(self, report: Report | None, trouble: str, notice: str = "") -> None:
        """`notice`: how it stands with the job itself, this moment; it goes before all else."""
        if report is not None:
            self._report, self._heard_s = report, time.monotonic()
        if report is not None or trouble:
            self._said = trouble
        said = notice or self._said or self._silence()
        self.display = bool(said)
        self.update(f" ✖ {harmless(said)}")

    def _silence(self) -> str:
        silent_s = time.monotonic() - self._heard_s
        if self._replayed or self._report is None or not self._report.job.running or silent_s < _SILENT_S:
            return ""
        return f"nothing new has been recorded for {clock(silent_s)}: what is shown is that old"
