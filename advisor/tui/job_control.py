"""The job as the screen handles it: what fails on the way to it is a sentence, never the end of the screen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.report_source import JobControls


@runtime_checkable
class HasTerminal(Protocol):
    """Controls of a job that writes to a terminal of ours: progress bars ask how wide it is."""

    def resize(self, rows: int, columns: int) -> None: ...


@runtime_checkable
class HasSupervisor(Protocol):
    """Controls of a job whose record and end come from a process that may be stopped or killed."""

    def notice(self) -> str: ...
    def end_unknown(self) -> bool: ...


class JobControl:
    def __init__(self, controls: JobControls) -> None:
        self._controls = controls
        self.trouble = ""

    def running(self) -> bool:
        """A job that could not be started does not run; `trouble` says why."""
        try:
            return self._controls.running()
        except (AdvisorError, OSError) as error:
            self.trouble = words(error)
            return False

    def notice(self) -> str:
        """Any other reason why the job's state cannot be seen now."""
        return self._controls.notice() if isinstance(self._controls, HasSupervisor) else ""

    def end_unknown(self) -> bool:
        """True if the job's end is not, or will not be, observed."""
        return isinstance(self._controls, HasSupervisor) and self._controls.end_unknown()

    def interrupt(self) -> None:
        self._try(self._controls.interrupt)

    def terminate(self) -> None:
        self._try(self._controls.terminate)

    def kill(self) -> None:
        self._try(self._controls.kill)

    def resize(self, rows: int, columns: int) -> None:
        if isinstance(self._controls, HasTerminal):
            controls = self._controls
            self._try(lambda: controls.resize(rows, columns))

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (AdvisorError, OSError) as error:
            self.trouble = words(error)
