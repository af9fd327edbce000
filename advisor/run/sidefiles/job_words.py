"""Stores the log output of the job and its libraries: NCCL's lines, the end of stderr, dumps of watchdogs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import happened
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.sidefiles.flight_files import found_dumps
from rn50_advisor.advisor.run.sidefiles.last_words import last_words
from rn50_advisor.advisor.run.sidefiles.nccl_lines import NcclLines
from rn50_advisor.advisor.run.sidefiles.stderr_files import StderrFiles, Streams
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.schema import OUTPUT_NAME
from rn50_advisor.probes.documents.event_documents import FlightDumps, NcclPrinted, PrintedLines

_NOT_KEPT = ProbeGap(
    "output",
    "job",
    "the last lines of what the job printed went to a terminal or a pipe and are not kept",
    "2> FILE keeps them, and so does the screen: run without --no-tui",
)


class JobWords:
    """Call `look` every second, `ended` for each death; the rest at the job's end, partly only if it failed."""

    def __init__(
        self, writer: RunWriter, *, launcher_pid: int, printed_before: tuple[int, int], since_unix_s: float
    ) -> None:
        """`printed_before`: bytes that stood in the launcher's stdout and stderr."""
        self._writer = writer
        self._since_unix_s = since_unix_s
        self._stdout = Streams(1, printed_before[0], owner=launcher_pid)
        self._stderr = StderrFiles(printed_before[1], owner=launcher_pid)
        self._nccl = NcclLines(
            writer.folder / OUTPUT_NAME, os.environ, now_s=time.monotonic(), since_unix_s=since_unix_s
        )

    def look(self, ranks: Iterable[Follower]) -> None:
        for rank in ranks:
            self._stdout.watch(rank.pid, rank.rank)
            self._stderr.watch(rank.pid, rank.rank)
        if self._nccl.due(time.monotonic()):
            self.keep_nccl()

    def ended(self, pid: int) -> None:
        self._stderr.ended(pid)

    def keep_nccl(self) -> None:
        """Stores NCCL's log where the user switched it on."""
        lines = self._nccl.look(self._stdout.files)
        if lines:
            self._writer.put_event(happened(NcclPrinted, {"lines": lines}, t_ns=time.perf_counter_ns()))

    def keep_output(self, ended_ns: int) -> None:
        """Stores the output of a failed job, from behind the screen or from files."""
        written, gaps = self._stderr.last_lines()
        lines = [*last_words(self._writer.folder), *written]
        if lines:
            self._writer.put_event(happened(PrintedLines, {"lines": lines}, t_ns=ended_ns))
        if not (lines or gaps or self._stderr.files or (self._writer.folder / OUTPUT_NAME).is_file()):
            gaps.append(_NOT_KEPT)
        for gap in gaps:
            self._writer.put_gap(gap)

    def keep_flight(self, ended_ns: int) -> None:
        """Stores the flight recorder dump of a watchdog that ended the job."""
        dumps = found_dumps(os.environ, self._since_unix_s)
        if dumps:
            data: FlightDumps = {"ranks": {str(rank): dump for rank, dump in dumps.items()}}
            self._writer.put_event(happened(FlightDumps, data, t_ns=ended_ns))
