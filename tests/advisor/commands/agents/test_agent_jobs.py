"""A job that an agent started: its output is kept masked, its end is that of Ctrl-C, and it needs nobody who reads from it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import psutil
import pytest

from rn50_advisor.advisor.commands.agents import agent_jobs
from rn50_advisor.advisor.commands.agents.agent_jobs import TAIL_CHARS, AgentJob, Ending
from rn50_advisor.advisor.model.errors import AdvisorError
from waiting import wait_for

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3"
# Ends on the second signal it can notice: Ctrl-C alone is not enough.
STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: print('no', flush=True)); "
    "print('ready', flush=True); time.sleep(600)"
)
LONG = "import time; print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], AgentJob]:
    """Starts a Python program in place of our command line, which tests of the launcher start."""

    def command(module: str, arguments: list[str]) -> list[str]:
        return [sys.executable, "-c", *arguments]

    monkeypatch.setattr(agent_jobs, "module_command", command)
    return lambda program: AgentJob([program], folder=tmp_path, output=tmp_path / "output.log")


def ready(job: AgentJob, tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    wait_for(lambda: output.exists() and b"ready" in output.read_bytes(), "the job's start")


def test_output_is_kept_with_secrets_masked_and_the_exit_code_is_the_jobs(started: Callable[[str], AgentJob]) -> None:
    job = started(f"import sys; print('token {SECRET}'); print('to stderr', file=sys.stderr); sys.exit(7)")
    assert job.wait(60, Event()) == Ending(7)
    assert "to stderr" in job.tail() and "token " in job.tail() and SECRET not in job.tail()


def test_of_much_output_the_end_is_told(started: Callable[[str], AgentJob]) -> None:
    job = started("for n in range(20_000): print('line', n)")
    assert job.wait(60, Event()).exit_code == 0
    assert job.tail().endswith("line 19999") and len(job.tail()) <= TAIL_CHARS


def test_a_job_has_no_input(started: Callable[[str], AgentJob]) -> None:
    job = started("import sys; print(repr(sys.stdin.read()))")
    assert job.wait(60, Event()).exit_code == 0 and job.tail() == "''"


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_is_interrupted_at_its_limit_or_where_nobody_waits(
    started: Callable[[str], AgentJob], tmp_path: Path, cancelled: bool
) -> None:
    job, stop = started(LONG), Event()
    ready(job, tmp_path)
    if cancelled:
        stop.set()
    ending = job.wait(600 if cancelled else 0, stop)
    assert ending == Ending(-signal.SIGINT, "cancelled" if cancelled else "time limit")
    assert job.tail().endswith("KeyboardInterrupt")


def test_the_whole_group_is_interrupted_as_by_a_terminal(started: Callable[[str], AgentJob], tmp_path: Path) -> None:
    child = "import time; print('ready', flush=True); time.sleep(600)"
    job = started(f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {child!r}]))")
    ready(job, tmp_path)
    children = psutil.Process(job.pid).children()
    assert job.wait(0, Event()).stopped == "time limit"
    gone, alive = psutil.wait_procs(children, timeout=10)
    assert len(gone) == 1 and not alive


def test_a_job_that_goes_on_after_ctrl_c_is_terminated(started: Callable[[str], AgentJob], tmp_path: Path) -> None:
    job = started(STUBBORN)
    ready(job, tmp_path)
    assert job.wait(0, Event(), grace_s=0.5) == Ending(-signal.SIGTERM, "time limit")
    assert job.tail().splitlines() == ["ready", "no"]


def test_a_job_that_survives_both_is_left_alone(started: Callable[[str], AgentJob], tmp_path: Path) -> None:
    job = started(STUBBORN.replace("print('ready'", "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready'"))
    ready(job, tmp_path)
    assert job.wait(0, Event(), grace_s=0.3) == Ending(None, "time limit")
    assert job.running() and job.tail().splitlines() == ["ready", "no"]
    os.killpg(job.pid, signal.SIGKILL)
    assert job.wait(60, Event()).exit_code == -signal.SIGKILL


def test_an_ended_job_is_not_signalled(started: Callable[[str], AgentJob], monkeypatch: pytest.MonkeyPatch) -> None:
    job = started("pass")
    job.wait(60, Event())
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("its number may be somebody else's"))
    job.interrupt()


def test_a_job_that_cannot_be_started_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="could not be started"):
        AgentJob(["--version"], folder=tmp_path / "none", output=tmp_path / "output.log")
