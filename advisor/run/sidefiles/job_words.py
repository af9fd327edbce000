"""What the job and its libraries have said of themselves, put into the run: NCCL's lines, last words on stderr, dumps of watchdogs."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.sidefiles.flight_files import found_dumps
from rn50_advisor.advisor.run.sidefiles.last_words import last_words
from rn50_advisor.advisor.run.sidefiles.nccl_lines import NcclLines
from rn50_advisor.advisor.run.sidefiles.stderr_files import StderrFiles, Streams
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.schema import OUTPUT_NAME

_NOT_KEPT = ProbeGap(
    "output",
    "job",
    "the last lines of what the job printed went to a terminal or a pipe and are not kept",
    "2> FILE keeps them, and so does the screen: run without --no-tui",
)


class JobWords:
    """`look` is for every second, `ended` for each death; the rest for the end of the job, some of it where it failed only."""

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
        """What NCCL has said of itself, where the user asked it to."""
        lines = self._nccl.look(self._stdout.files)
        if lines:
            self._writer.put_event(Event(time.perf_counter_ns(), "nccl_log", None, None, {"lines": lines}))

    def keep_output(self, ended_ns: int) -> None:
        """What it said of its failure: behind the screen, or into files."""
        written, gaps = self._stderr.last_lines()
        lines = [*last_words(self._writer.folder), *written]
        if lines:
            self._writer.put_event(Event(ended_ns, "output", None, None, {"lines": lines}))
        if not (lines or gaps or self._stderr.files or (self._writer.folder / OUTPUT_NAME).is_file()):
            gaps.append(_NOT_KEPT)
        for gap in gaps:
            self._writer.put_gap(gap)

    def keep_flight(self, ended_ns: int) -> None:
        """What a watchdog that ended the job has written of the last collectives."""
        dumps = found_dumps(os.environ, self._since_unix_s)
        if dumps:
            data = {"ranks": {str(rank): dump for rank, dump in dumps.items()}}
            self._writer.put_event(Event(ended_ns, "flight", None, None, data))
