"""A job runs under the launcher as it would without: its end, its signals, its output, whatever becomes of the recording."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for

PRELUDE = """
import os, signal, subprocess, sys, time
from pathlib import Path
from rn50_advisor.advisor.model.errors import CommandNotFound
from rn50_advisor.advisor.run.launch.launcher import run_job
from rn50_advisor.advisor.run.run_options import RunOptions
def run(*argv, folder=None, **more): return run_job(argv, run_folder=folder, **more)
"""
# A job that says when it can be signalled, counts what it gets, and ends at SIGTERM.
COUNTS = """
import signal, sys
got = []
def note(number, frame):
    got.append(number)
    if number == signal.SIGTERM:
        print(*got, flush=True)
        sys.exit(len(got))
for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, note)
print("ready", flush=True)
while True:
    signal.pause()
"""


def launched(code: str, *argv: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def output_of(code: str, *argv: str) -> str:
    found = launched(code, *argv)
    assert (found.returncode, found.stderr) == (0, ""), found.stderr
    return found.stdout.strip()


@pytest.mark.parametrize(
    ("job", "end"),
    [("exit 0", (0, None)), ("exit 3", (3, None)), ("kill -9 $$", (None, 9)), ("kill -TERM $$", (None, 15))],
)
def test_the_end_of_the_job_is_returned(job: str, end: tuple[Any, Any]) -> None:
    code = "end = run('sh', '-c', sys.argv[1]); print((end.exit_code, end.signal), end.started, end.recorded, end.complaint)"
    assert output_of(code, job) == f"{end} True False None"


def test_output_and_input_are_the_jobs_own() -> None:
    code = PRELUDE + "sys.exit(run('sh', '-c', 'read line; echo got $line; echo err >&2').exit_code)"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, input=b"x\n", capture_output=True, timeout=60, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (0, b"got x\n", b"err\n")


def test_on_start_gets_the_jobs_pid() -> None:
    out = output_of("pids = []; run('sh', '-c', 'echo $$', on_start=pids.append); print(*pids)").split()
    assert out[0] == out[1]


def test_a_trial_that_cannot_be_asked_for_is_told(tmp_path: Path) -> None:
    unwritable = launched(
        "run('true', folder=Path(sys.argv[1]), options=RunOptions(trial={'changes': [object()]}))", str(tmp_path)
    )
    unrecorded = launched("run('true', options=RunOptions(trial={}))")
    assert (
        "nothing is tried, the job runs as it is: Object of type object is not JSON serializable" in unwritable.stderr
    )
    assert "nothing is tried, the job runs as it is: there is no recorder in the job" in unrecorded.stderr
    assert (unwritable.returncode, unrecorded.returncode) == (0, 0)


def test_a_command_that_is_not_there_is_an_error() -> None:
    code = """
        try:
            run("no-such-command-anywhere")
        except CommandNotFound as error:
            print(error.message)
    """
    assert output_of(code) == "no-such-command-anywhere: command not found"


def test_a_job_that_was_asked_to_end_before_it_began_is_not_started(tmp_path: Path) -> None:
    code = """
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        os.kill(os.getpid(), signal.SIGTERM)
        folder = Path(sys.argv[1])
        folder.mkdir()
        end = run("touch", sys.argv[2], folder=folder)
        print(end.exit_code, end.signal, end.started, folder.exists(), Path(sys.argv[2]).exists())
    """
    out = output_of(code, str(tmp_path / "run"), str(tmp_path / "job-ran"))
    assert out == f"None {int(signal.SIGTERM)} False False False"


@pytest.mark.parametrize("to_group", [False, True], ids=["to us alone", "to the whole group"])
def test_each_signal_reaches_the_job_once(to_group: bool) -> None:
    code = "sys.exit(run(sys.executable, '-c', sys.argv[1]).exit_code)"
    command = [sys.executable, "-c", "import os; os.setpgid(0, 0)" + PRELUDE + code, COUNTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        send = os.killpg if to_group else os.kill
        for number in (signal.SIGUSR1, signal.SIGTERM):
            send(process.pid, number)
        assert process.stdout.read() == f"{int(signal.SIGUSR1)} {int(signal.SIGTERM)}\n"
        assert process.wait(60) == 2


def test_a_signal_that_the_job_was_quicker_to_obey_ends_nobody_else() -> None:
    """The launcher is stopped while the group gets it, so that it sees one signal, the job's end and the other signal."""
    code = "end = run(sys.executable, '-c', sys.argv[1]); print(end.exit_code, flush=True)"
    command = [sys.executable, "-c", "import os; os.setpgid(0, 0)" + PRELUDE + code, COUNTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        job = next(child for child in psutil.Process(process.pid).children() if child.cmdline()[-1] == COUNTS)
        os.kill(process.pid, signal.SIGSTOP)
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.killpg(process.pid, number)
        wait_for(lambda: job.status() == psutil.STATUS_ZOMBIE, "the job's end")
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.read() == f"{int(signal.SIGUSR1)} {int(signal.SIGTERM)}\n2\n"
        assert process.wait(60) == 0


def test_orphans_are_reaped_while_the_job_runs() -> None:
    """The launcher is made a subreaper, as a container's init is one; the job's orphan ends before the job does."""
    job = 'sh -c "true & echo \\$!" > "$0"; read -r pid < "$0"; while kill -0 $pid 2>/dev/null; do sleep 0.05; done'
    code = """
        import ctypes, tempfile
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
        with tempfile.NamedTemporaryFile() as file:
            print(run("sh", "-c", sys.argv[1], file.name).exit_code)
    """
    assert output_of(code, job) == "0"


def test_a_recorded_job_leaves_a_run_that_says_how_it_ended(tmp_path: Path) -> None:
    code = """
        end = run("sh", "-c", "exit 3", folder=Path(sys.argv[1]), name="mine", options=RunOptions(host_probes=False))
        print(end.exit_code, end.recorded, end.complaint)
    """
    assert output_of(code, str(tmp_path / "run")) == "3 True None"
    meta = read_recording(tmp_path / "run").meta
    assert (meta.name, list(meta.argv), meta.exit_code) == ("mine", ["sh", "-c", "exit 3"], 3)


def test_a_recording_that_cannot_be_made_costs_the_job_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = launched(
        "end = run('sh', '-c', 'exit 3', folder=Path(sys.argv[1])); print(end.exit_code, end.recorded, bool(end.complaint))",
        str(tmp_path / "file" / "run"),
    )
    assert found.stdout.strip() == "3 False True"
    assert found.stderr.startswith("rn50-advisor: the job runs unrecorded: ")


def test_a_command_that_is_not_there_leaves_no_run(tmp_path: Path) -> None:
    code = """
        Path(sys.argv[1]).mkdir()
        try:
            run("no-such-command-anywhere", folder=Path(sys.argv[1]))
        except CommandNotFound as error:
            print(error.exit_code)
    """
    assert output_of(code, str(tmp_path / "run")) == "127"
    assert not (tmp_path / "run").exists()
