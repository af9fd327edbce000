"""The screen is right at each moment about a job whose supervisor is stopped or killed. Real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.errors import CommandNotFound
from rn50_advisor.advisor.run.launch.screen_job import Supervised
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.tui.job_control import JobControl
from tui_doubles import Reports, screen_text, settle, shown, until

WAITS = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)"


@pytest.fixture
def go(tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def job(tmp_path: Path, go: Path) -> Iterator[Supervised]:
    handle = Supervised.start(
        [sys.executable, "-c", WAITS, str(go)], run_folder=tmp_path / "r", options=RunOptions(host_probes=False)
    )
    try:
        yield handle
    finally:
        for number in (signal.SIGCONT, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                handle.kill()
                os.kill(handle.pid, number)
        handle.wait(30)


def report(**changes):
    healthy = samples.healthy()
    return replace(healthy, job=replace(healthy.job, running=True, exit_code=None, exit_signal=None, **changes))


async def test_a_killed_supervisor_leaves_a_job_that_runs_until_it_ends(job, go):
    async with shown(Reports(report()), (130, 40), controls=job) as (app, pilot):
        await until(pilot, lambda: job.job_pid and not job.notice())
        os.kill(job.pid, signal.SIGKILL)
        await until(pilot, lambda: "the job still runs, unrecorded" in screen_text(app))
        await until(pilot, lambda: "runs on, unrecorded" in screen_text(app))
        assert "ended" not in screen_text(app)
        await pilot.press("q")
        await until(pilot, lambda: "it stays unrecorded" in screen_text(app))
        assert app.return_value is None
        await pilot.press("escape")
        go.touch()
        await until(pilot, lambda: "■ ended, exit code unknown" in screen_text(app))
        await until(pilot, lambda: "how the job ended is not known" in screen_text(app))
        assert "reading the rest" not in screen_text(app) and "exit code 0" not in screen_text(app)
    end = job.wait(30)
    assert (end.exit_code, end.signal) == (None, None)


async def test_a_stopped_supervisor_stops_the_recording_and_not_the_job(job, go):
    async with shown(Reports(report()), (130, 40), controls=job) as (app, pilot):
        await until(pilot, lambda: job.job_pid and not job.notice())
        os.kill(job.pid, signal.SIGSTOP)
        await until(pilot, lambda: "the recording is paused while the job runs on" in screen_text(app))
        assert "▶ running" in screen_text(app) and "ended" not in screen_text(app)
        go.touch()
        await until(pilot, lambda: "the job has ended, but its supervisor is stopped" in screen_text(app))
        os.kill(job.pid, signal.SIGCONT)
        await until(pilot, lambda: "■ ended after" in screen_text(app))
        await settle(app, pilot)
        assert "supervisor" not in screen_text(app)
    assert job.wait(30).exit_code == 0


class Controls:
    """A job that notes its calls; `broken`: what each call raises."""

    def __init__(self, broken: Exception | None = None) -> None:
        self.broken = broken
        self.calls: list[object] = []

    def _note(self, *what: object) -> None:
        if self.broken:
            raise self.broken
        self.calls.append(what)

    def interrupt(self) -> None:
        self._note("interrupt")

    def terminate(self) -> None:
        self._note("terminate")

    def kill(self) -> None:
        self._note("kill")

    def running(self) -> bool:
        self._note("running")
        return True


class WithTerminal(Controls):
    def resize(self, rows: int, columns: int) -> None:
        self._note("resize", rows, columns)


class WithSupervisor(Controls):
    def notice(self) -> str:
        return "it is stopped"

    def end_unknown(self) -> bool:
        return True


def test_what_is_asked_reaches_the_job():
    controls = WithTerminal()
    control = JobControl(controls)
    control.interrupt()
    control.terminate()
    control.kill()
    control.resize(24, 80)
    assert control.running() and control.trouble == ""
    assert controls.calls == [("interrupt",), ("terminate",), ("kill",), ("resize", 24, 80), ("running",)]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CommandNotFound("no such command", "is it installed?"), "no such command → is it installed?"),
        (OSError("gone"), "OSError: gone"),
    ],
)
@pytest.mark.parametrize("act", ["interrupt", "terminate", "kill", "running", "resize"])
def test_what_fails_on_the_way_is_a_sentence(act: str, error: Exception, said: str):
    control = JobControl(WithTerminal(error))
    assert not getattr(control, act)(*((24, 80) if act == "resize" else ()))
    assert control.trouble == said


def test_a_job_without_terminal_and_supervisor_has_nothing_to_say_of_them():
    control = JobControl(Controls(OSError("never asked")))
    control.resize(24, 80)
    assert (control.trouble, control.notice(), control.end_unknown()) == ("", "", False)
    watched = JobControl(WithSupervisor())
    assert (watched.notice(), watched.end_unknown()) == ("it is stopped", True)
