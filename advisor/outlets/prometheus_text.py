"""The series of a run as prometheus_client writes them, for a scrape or for a file, of which a reader never finds half."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.outlets.outlet import NotDelivered, Outlet, RunReading, check_installed

if TYPE_CHECKING:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.registry import CollectorRegistry

# What a file of ours has near its start; what knows the names is not imported here.
_OURS, _START_BYTES = b"rn50_advisor_", 4096
_SUFFIX = ".prom"  # the textfile collector of node_exporter reads no others, and no half-written file has it


class NewestReading:
    """A collector of prometheus_client: each scrape gets the newest reading, none before the first."""

    def __init__(self) -> None:
        self.reading: RunReading | None = None

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        from rn50_advisor.advisor.outlets.run_series import series_of  # noqa: PLC0415

        for family in series_of(self.reading) if self.reading is not None else ():
            kind = CounterMetricFamily if family.kind == "total" else GaugeMetricFamily
            names = list(dict.fromkeys(name for point in family.points for name in point.labels))
            made = kind(family.prometheus_name, family.what, labels=names)
            for point in family.points:
                made.add_metric([point.labels.get(name, "") for name in names], point.value)
            yield made


def registry_of(newest: NewestReading) -> CollectorRegistry:
    """A registry of its own: the default one has series of this process, which nobody asked for."""
    from prometheus_client.registry import CollectorRegistry  # noqa: PLC0415 - an extra

    registry = CollectorRegistry(auto_describe=False)
    registry.register(newest)
    return registry


class MetricsFile(Outlet):
    name = "metrics.file"

    def __init__(self, file: str) -> None:
        """Raises UsageError."""
        self._file = Path(os.path.abspath(file))  # noqa: PTH100 - the name as it was given, links included
        self.place = str(self._file)
        if self._file.suffix != _SUFFIX:
            raise UsageError(f"--metrics-file {file} does not end with {_SUFFIX}", "node_exporter reads no other files")
        self._newest = NewestReading()

    def check(self) -> None:
        check_installed("--metrics-file")
        beside = self._file.with_name(f".{self._file.name}.{secrets.token_hex(4)}")
        try:
            if why := self._not_ours():
                raise UsageError(f"--metrics-file {self._file} {why}", "name another file, or remove it")
            os.close(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            beside.unlink()
        except OSError as error:
            raise UsageError(f"--metrics-file {self._file} cannot be written: {error.strerror or error}") from error

    def deliver(self, reading: RunReading) -> None:
        from prometheus_client.exposition import write_to_textfile  # noqa: PLC0415 - an extra

        if why := self._not_ours():
            raise NotDelivered(f"it {why}")
        self._newest.reading = reading
        write_to_textfile(str(self._file), registry_of(self._newest))

    def _not_ours(self) -> str:
        """Why the file that is there must not be replaced: a slip of the pen shall not cost another exporter's file. Raises OSError."""
        try:
            there, folder = self._file.lstat(), self._file.parent.stat()
        except FileNotFoundError:
            return ""
        if not stat.S_ISREG(there.st_mode):
            return "is a link" if stat.S_ISLNK(there.st_mode) else "is no regular file"
        if folder.st_mode & stat.S_ISVTX and os.geteuid() not in (0, there.st_uid, folder.st_uid):
            return "belongs to somebody else"  # who alone may replace it, as in /tmp
        with self._file.open("rb") as file:
            start = file.read(_START_BYTES)
        return "" if not start.strip() or _OURS in start else "holds something else"
