"""The source of the screen's reports: a run that is being recorded, or a replayed one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from rn50_advisor.advisor.model.history import History
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report

RECENT_STEPS = 2000  # raw steps a rank that one live reading carries: minutes of a fast job, hours of a slow one
RESTS = 10.0  # times as long as a reading took: the job needs the cores more than the screen does
LONGEST_REST_S = 8.0
REPLAY_GRAIN_S = 0.25  # a replay that moved less has nothing new to show


Diagnosis = Callable[[Recording], Report]


def _diagnose(recording: Recording) -> Report:
    """Without a configuration of thresholds."""
    from rn50_advisor.advisor.verdict.diagnose import diagnose  # noqa: PLC0415 - analysis is heavy and the first frame should not wait for it

    return diagnose(recording)


@runtime_checkable
class ReportSource(Protocol):
    def poll(self) -> Report | None:
        """The newest report, None if nothing changed; called in a worker thread, may raise AdvisorError."""


@runtime_checkable
class ReplaySource(ReportSource, Protocol):
    """A source that has a position; `seek` and the two settings are called by the screen's thread."""

    speed: float
    paused: bool

    @property
    def position_s(self) -> float: ...

    @property
    def duration_s(self) -> float: ...

    def seek(self, s: float) -> None: ...


class JobControls(Protocol):
    """The screen's controls over the job; each call returns at once."""

    def interrupt(self) -> None: ...
    def terminate(self) -> None: ...
    def kill(self) -> None: ...
    def running(self) -> bool: ...


class LiveSource:
    """Reads the run again whenever its file has changed."""

    def __init__(
        self, run_path: Path, *, diagnosis: Diagnosis | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.run_path = run_path
        self._clock = clock
        self._rest_until_s = -math.inf
        self._diagnose = diagnosis or _diagnose
        self._seen: tuple[tuple[int, int], ...] = ()
        self._history: History | None = None
        self._since_start = False  # True: the history reaches back to the first step

    def poll(self) -> Report | None:
        from rn50_advisor.advisor.merge.job_reading import read_job  # noqa: PLC0415 - the first frame should not wait for numpy

        now = self._fingerprint()
        began_s = self._clock()
        if (now and now == self._seen) or began_s < self._rest_until_s:
            return None
        report = self._with_past(self._diagnose(read_job(self.run_path, recent_steps=RECENT_STEPS)))
        if not report.job.running:  # the final verdict is the one of all steps, as every later report will have it
            report = self._diagnose(read_job(self.run_path))
        self._seen = now
        ended_s = self._clock()
        self._rest_until_s = ended_s + min((ended_s - began_s) * RESTS, LONGEST_REST_S)
        return report

    def _with_past(self, report: Report) -> Report:
        """Adds what earlier readings saw over time. A screen that opens late reads the whole run once, with its second report."""
        from rn50_advisor.advisor.analysis.view.run_history import joined  # noqa: PLC0415
        from rn50_advisor.advisor.merge.job_reading import read_job  # noqa: PLC0415

        if self._history is not None and not self._since_start:
            self._since_start = True
            self._history = self._diagnose(read_job(self.run_path)).history
        self._since_start = self._since_start or report.step_time.steps <= RECENT_STEPS
        self._history = joined(self._history, report.history)
        return replace(report, history=self._history)

    def _fingerprint(self) -> tuple[tuple[int, int], ...]:
        from rn50_advisor.advisor.merge.job_reading import written_files  # noqa: PLC0415

        states = []
        for path in written_files(self.run_path):
            try:
                state = path.stat()
            except OSError:
                continue
            states.append((state.st_mtime_ns, state.st_size))
        return tuple(states)


class ReplayedRun:
    """An old run, shown as it would have looked at each moment."""

    def __init__(self, run_path: Path, speed: float = 1.0, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run_path = run_path
        self._clock = clock
        self._lock = threading.Lock()
        self._recording: Recording | None = None
        self._whole = False  # False: later rows and samples have not been read yet
        self._duration_s = 0.0
        self._base_s = 0.0
        self._anchor = clock()
        self._speed = speed
        self._paused = False
        self._shown_s: float | None = None

    @property
    def duration_s(self) -> float:
        return self._duration_s

    @property
    def position_s(self) -> float:
        with self._lock:
            return self._position()

    @property
    def speed(self) -> float:
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        with self._lock:
            self._move_to(self._position())
            self._speed = max(value, 0.0)

    @property
    def paused(self) -> bool:
        return self._paused

    @paused.setter
    def paused(self, value: bool) -> None:
        with self._lock:
            self._move_to(self._position())
            self._paused = value

    def seek(self, s: float) -> None:
        with self._lock:
            self._move_to(min(max(s, 0.0), self._duration_s))

    def poll(self) -> Report | None:
        from rn50_advisor.advisor.store.run_reader import cut  # noqa: PLC0415

        recording = self._load()
        with self._lock:
            position_s = self._position()
            at_end = position_s >= self._duration_s
        shown_s = self._shown_s
        if shown_s is not None and (
            abs(position_s - shown_s) < REPLAY_GRAIN_S and not (at_end and shown_s != position_s)
        ):
            return None
        until_ns = recording.meta.started_ns + round(position_s * 1e9)
        report = _diagnose(recording if at_end else cut(recording, until_ns))
        self._shown_s = position_s
        return report

    def _load(self) -> Recording:
        """The recording; at first only its beginning, without most of a long run."""
        from rn50_advisor.advisor.merge.job_reading import read_job  # noqa: PLC0415
        from rn50_advisor.advisor.store.run_reader import is_whole  # noqa: PLC0415

        if self._recording is None:
            self._recording = read_job(self.run_path, beginning=True)
            self._whole = is_whole(self._recording)
            with self._lock:
                self._duration_s = _duration_s(self._recording)
                self._move_to(min(self._base_s, self._duration_s))
        elif not self._whole:
            self._recording, self._whole = read_job(self.run_path), True
            with self._lock:
                self._duration_s = _duration_s(self._recording)
        return self._recording

    def _position(self) -> float:
        if self._recording is None:
            return self._base_s
        moved_s = 0.0 if self._paused else (self._clock() - self._anchor) * self._speed
        return min(self._base_s + moved_s, self._duration_s)

    def _move_to(self, s: float) -> None:
        self._base_s = s
        self._anchor = self._clock()


def _duration_s(recording: Recording) -> float:
    meta = recording.meta
    return (max(meta.ended_ns or meta.last_ns, meta.last_ns, meta.started_ns) - meta.started_ns) / 1e9
