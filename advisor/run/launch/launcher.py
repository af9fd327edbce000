"""Runs the job transparently: all output passes through, every signal arrives once, and the job survives the advisor.

Standard library only, and no thread until the job has ended: a crash in here would lose the job's exit code, and a
parent (a batch system, or a container whose first process we may be) would take the job for dead.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.run.companion import Companion, warn
from rn50_advisor.advisor.run.launch.group_canary import Canary
from rn50_advisor.advisor.run.launch.job_end import JobEnd, describe_error, exit_like
from rn50_advisor.advisor.run.launch.job_environment import CannotInject, inherited_environment, with_recorder
from rn50_advisor.advisor.run.launch.job_signals import ENDING, STOPS, WATCHED, Arrival, SignalDesk
from rn50_advisor.advisor.run.launch.orphans import reap_adopted
from rn50_advisor.advisor.run.launch.spawn import guard_standard_descriptors, spawn
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder, in_use, sweep
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.run.sidefiles.recorder_requests import allow, ask, try_out

__all__ = ["JobEnd", "exit_like", "leave_nothing", "run_job"]

_LOOK_S = 0.5  # safety net only: the end of the job arrives as a signal
_STOP_FOLLOWS_S = 2.0  # a job that stops (SIGSTOP) within this time after it was asked to stops us too
_EARLY_S = 0.1
_NAP_S = 0.05
_ANY_CHANGE = os.WEXITED | os.WSTOPPED | os.WCONTINUED
_ENDED = frozenset({os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED})


def run_job(
    argv: Sequence[str],
    *,
    run_folder: Path | None,
    options: RunOptions | None = None,
    name: str = "",
    on_start: Callable[[int], None] | None = None,
    own_children: Callable[[], Collection[int]] = tuple,
    output_kept: bool = False,
) -> JobEnd:
    """Run the job to its end and record it into `run_folder` (None: do not record). Main thread only; `on_start` gets the job's pid.

    `own_children` is called repeatedly while the job runs and returns the children that the caller waits for; all others are reaped.
    `output_kept`: the caller keeps the job's output in the run's folder.

    Raises CommandNotFound or CommandNotExecutable, and then leaves no run; whatever else goes wrong on our side costs the recording,
    not the job.
    """
    guard_standard_descriptors()
    with SignalDesk() as desk:
        canary = Canary()
        rings = _make_rings(run_folder)
        try:
            if (number := desk.pending_end()) is not None:
                # it would have ended the job
                leave_nothing(run_folder)
                return JobEnd(None, number, started=False)
            folder = rings.path if rings else None
            plan = RecordingPlan(
                argv=tuple(argv),
                run_folder=run_folder,
                name=name,
                options=options or RunOptions(),
                ring_folder=folder,
                began_ns=time.perf_counter_ns(),
                began_unix_s=time.time(),
                launcher_pid=os.getpid(),
                printed_before=(_bytes_in(1), _bytes_in(2)) if run_folder is not None else (0, 0),
                output_kept=output_kept,
            )
            _pass_budget(plan)
            _ask_for_window(plan)
            _ask_for_trial(plan)
            return _run(plan, desk, canary, on_start, own_children)
        finally:
            _tidy_up(canary, rings)


def _tidy_up(canary: Canary, rings: RingFolder | None) -> None:
    with contextlib.suppress(Exception):  # the job's end is reported anyway
        canary.close()
    with contextlib.suppress(Exception):
        if rings is not None:
            rings.close(remove=not in_use(rings.path))


def _bytes_in(descriptor: int) -> int:
    """Bytes already in the file behind our stdout or stderr; 0 if unknown, as for a file that its server has forgotten."""
    with contextlib.suppress(OSError):
        return os.fstat(descriptor).st_size
    return 0


def _run(
    plan: RecordingPlan,
    desk: SignalDesk,
    canary: Canary,
    on_start: Callable[[int], None] | None,
    own_children: Callable[[], Collection[int]],
) -> JobEnd:
    try:
        job = _spawn(plan, desk)
    except AdvisorError:
        leave_nothing(plan.run_folder)
        raise
    companion = Companion(plan, job.pid)
    try:
        _deliver_early(job.pid, desk)
        companion.start()
        if on_start is not None:
            on_start(job.pid)
        exit_code, number = _wait(job, desk, canary, companion, own_children)
    except Exception as error:  # noqa: BLE001 - the wall: the job goes on, and is waited for
        warn(f"signals are passed on without checking their senders: {describe_error(error)}")
        exit_code, number = _wait_plainly(job)
    ended_ns = time.perf_counter_ns()
    recorded, complaint = companion.finish(exit_code, number, ended_ns)
    duration_s = (ended_ns - plan.began_ns) / 1e9
    return JobEnd(exit_code, number, duration_s, recorded=recorded, complaint=complaint)


def _pass_budget(plan: RecordingPlan) -> None:
    if plan.ring_folder is not None:
        with contextlib.suppress(OSError):  # the recorder then keeps to the usual one
            allow(plan.ring_folder, plan.options.overhead_budget)


def _ask_for_window(plan: RecordingPlan) -> None:
    """Before the job starts: a rank looks once, when it becomes one."""
    if plan.options.deep == "off" or plan.ring_folder is None or plan.run_folder is None:
        return
    try:
        ask(plan.ring_folder, plan.run_folder, auto=plan.options.deep == "auto")
    except OSError as error:
        warn(f"no deep window: {error.strerror or error}")


def _ask_for_trial(plan: RecordingPlan) -> None:
    """Before the job starts: its processes look when they import torch. Without a request their facts have no `trial`."""
    if plan.options.trial is None:
        return
    try:
        if plan.ring_folder is None:
            raise OSError("there is no recorder in the job")
        try_out(plan.ring_folder, plan.options.trial)
    except (OSError, TypeError, ValueError) as error:
        warn(f"nothing is tried, the job runs as it is: {getattr(error, 'strerror', None) or error}")


def leave_nothing(run_folder: Path | None) -> None:
    """Removes the empty folder made for the run of a job that was not started."""
    if run_folder is not None:
        with contextlib.suppress(OSError):
            run_folder.rmdir()


def _make_rings(run_folder: Path | None) -> RingFolder | None:
    if run_folder is None:
        return None
    with contextlib.suppress(OSError):
        sweep()
    try:
        return RingFolder()
    except OSError as error:
        warn(f"the job runs without the recorder inside it: {error.strerror or error}")
        return None


def _spawn(plan: RecordingPlan, desk: SignalDesk) -> subprocess.Popen[bytes]:
    environment = inherited_environment()
    if plan.ring_folder is not None:
        try:
            return spawn(plan.argv, with_recorder(environment, plan.ring_folder), desk.restore_in_child)
        except CannotInject as error:
            reason = str(error)
        except OSError as error:
            if error.errno != errno.E2BIG:
                raise
            reason = "its arguments and environment leave no room for two more variables"
        warn(f"the job runs without the recorder inside it: {reason}")
    return spawn(plan.argv, environment, desk.restore_in_child)


def _deliver_early(pid: int, desk: SignalDesk) -> None:
    """A Ctrl-C that came between our last look and the fork reached us and not the job.

    One that came just after it reached the job, which cannot have had the time to catch it: then it is dead in a moment.
    """
    early = []
    while (number := desk.pending_end()) is not None:
        early.append(number)
    deadline = time.monotonic() + _EARLY_S
    while early and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if time.monotonic() > deadline:
            for number in early:
                _pass_on(pid, number)
            return
        time.sleep(0.005)


class _Child:
    """The job's main process, as the kernel reports it to its parent."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self.stopped_by = 0
        self._continued_s = -_STOP_FOLLOWS_S

    def ending(self) -> tuple[int | None, int | None] | None:
        """Exit code or signal once it has ended; it is reaped then."""
        while (state := os.waitid(os.P_PID, self._process.pid, _ANY_CHANGE | os.WNOHANG)) is not None:
            if state.si_pid != self._process.pid:
                break
            if state.si_code in _ENDED:
                killed = state.si_code != os.CLD_EXITED
                self._process.returncode = -state.si_status if killed else state.si_status  # Popen must not wait again
                return (None, state.si_status) if killed else (state.si_status, None)
            if state.si_code == os.CLD_STOPPED:
                self.stopped_by = state.si_status
            else:
                self.stopped_by, self._continued_s = 0, time.monotonic()
        return None

    @property
    def just_continued(self) -> bool:
        return time.monotonic() - self._continued_s < _STOP_FOLLOWS_S


def _wait_plainly(job: subprocess.Popen[bytes]) -> tuple[int | None, int | None]:
    """Exit code of the job, or the signal that killed it; neither if another process has reaped it."""
    while job.returncode is None:
        try:
            pid, status = os.waitpid(job.pid, os.WNOHANG)
        except ChildProcessError:
            return None, None
        if pid:
            job.returncode = os.waitstatus_to_exitcode(status)
        else:
            _pass_all_on(job.pid)
            time.sleep(_NAP_S)
    return (None, -job.returncode) if job.returncode < 0 else (job.returncode, None)


def _pass_all_on(pid: int) -> None:
    while (info := signal.sigtimedwait(WATCHED - {signal.SIGCHLD}, 0)) is not None:
        _pass_on(pid, info.si_signo)


def _wait(
    job: subprocess.Popen[bytes],
    desk: SignalDesk,
    canary: Canary,
    companion: Companion,
    own_children: Callable[[], Collection[int]],
) -> tuple[int | None, int | None]:
    """Pass signals on until the job ends; its exit code, or the signal that killed it."""
    child, stop_until = _Child(job), 0.0
    while (end := child.ending()) is None:
        companion.look()
        reap_adopted({job.pid, *companion.pids(), *canary.pids(), *own_children()})
        if child.stopped_by and time.monotonic() < stop_until:
            stop_until = 0.0
            companion.send_signal(signal.SIGSTOP)
            desk.stop_ourselves(child.stopped_by)
            companion.send_signal(signal.SIGCONT)
        arrival = desk.wait(0 if canary.used else _LOOK_S, companion.descriptor)
        if arrival is None:
            if canary.used:
                canary.renew()
        elif not (arrival.number == signal.SIGCHLD and arrival.by_kernel):
            if arrival.number in ENDING:
                companion.asked_to_end(arrival.number)
            got = False
            with contextlib.suppress(Exception):  # if it is unknown, sending twice is better than never
                got = _job_got(arrival, child, canary)
            if not got:
                _pass_on(job.pid, arrival.number)
            if arrival.number in STOPS:
                stop_until = time.monotonic() + _STOP_FOLLOWS_S
    # what came with the job's end meant the job, which may have been the quicker one of a group that was sent it
    while (late := desk.wait(0)) is not None:
        if late.number in ENDING:
            companion.asked_to_end(late.number)
    return end


def _pass_on(pid: int, number: int) -> None:
    """The job is not reaped yet, so the pid is still its own. We may not signal a job under another user (sudo), nor could the sender."""
    with contextlib.suppress(PermissionError, ProcessLookupError):
        os.kill(pid, number)


def _job_got(arrival: Arrival, child: _Child, canary: Canary) -> bool:
    if arrival.by_terminal:
        canary.expect(arrival.number)
        return True
    if arrival.number == signal.SIGCONT:
        # No waiting here: a stop signal takes a pending SIGCONT back, the canary's too, and a late SIGCONT would undo that stop.
        stopping = not STOPS.isdisjoint(signal.sigpending())
        return canary.group_got(arrival.number, patient=False) or child.just_continued or stopping
    # also SIGHUP of a terminal that goes away: the kernel sends it to the session's leader alone, which may be us
    return canary.group_got(arrival.number)
