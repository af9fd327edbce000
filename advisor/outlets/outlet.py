"""An outlet: one way in which what is known of a run leaves it while it goes."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.report import Report

INSTALL = "pip install 'rn50-advisor[metrics]'"


class NotDelivered(AdvisorError):
    """An outlet could not deliver. `message` says why in a few words and holds no credential: it goes into the run file."""


@dataclass(frozen=True, slots=True)
class RunReading:
    """What is known of a run at one moment."""

    report: Report
    run: str  # name of its folder
    host: str
    at_unix_s: float
    started_unix_s: float
    is_last: bool = False  # the job has ended, or is no longer recorded


class Outlet:
    """Called in a thread of its own, which may block; the job, the recording and other outlets do not wait for it.

    What `open`, `deliver` and `close` raise becomes one line of the report. After a failure the next readings are skipped for a while.
    """

    name: str  # of its gap: `metrics.file`
    place: str  # to which it delivers, as the report may show it: without credentials
    secrets: tuple[str, ...] = ()  # parts of the option's value that `ps` must not show

    def check(self) -> None:
        """Called before the job starts, in the process that starts it: imports nothing heavy. Raises UsageError or AdvisorError."""

    def open(self, run: Path) -> None:
        """Called before the first reading, and again later where it raised. `run`: the folder."""

    def deliver(self, reading: RunReading) -> None:
        """Called with the newest reading; a slow outlet never sees those between. The last one has `is_last`."""
        raise NotImplementedError

    def close(self) -> None:
        """Called after the last reading."""


def check_installed(option: str, module: str = "prometheus_client") -> None:
    """Raises UsageError where a module of the extra is missing. Does not import it."""
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # of a package above it
        found = None
    if found is None:
        raise UsageError(f"{option} needs {module}, which is not installed", INSTALL)
