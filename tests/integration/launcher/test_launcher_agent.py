"""The recording is a process of its own: whatever ends, stops or crashes it, the job and its exit code do not notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fake_job import Job, fake_rank
from launcher_harness import (
    children_that_run,
    in_agent,
    is_gone,
    killed_at_end,
    launch,
    python,
    read_until,
    run_to_end,
)
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from waiting import DEADLINE_S, wait_for


def agents_of(launcher_pid: int) -> list[int]:
    return children_that_run(launcher_pid, b"prepared_agent", b"recording_process")


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def agent_of(job: Job) -> int:
    (agent,) = wait_for(lambda: agents_of(job.process.pid), "the start of the agent")
    return int(agent)


def test_the_agent_holds_nothing_that_the_job_prints_to(run_folder: Path) -> None:
    with fake_rank(run_folder, stderr=subprocess.PIPE) as job:
        job.send("steps 1")
        job.until(lambda now: 0 in now.steps, "the first step")
        agent = agent_of(job)
        theirs = {str(Path(f"/proc/{job.pid}/fd/{number}").readlink()) for number in range(3)}
        ours = {str(entry.readlink()) for entry in Path(f"/proc/{agent}/fd").iterdir() if entry.exists()}
        assert not theirs & ours
        assert os.getsid(agent) == agent
        job.order("leave")
        job.end(0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_an_agent_that_is_killed_costs_one_line_and_what_was_not_committed(run_folder: Path, number: int) -> None:
    crash = f"lambda: ctypes.string_at(0) if {int(number)} == {int(signal.SIGSEGV)} else os.kill(os.getpid(), 9)"
    code = f"""
import ctypes, os, rn50_advisor.advisor.run.overhead_budget as t
die, look = {crash}, t.OverheadBudget.look
def looked(self, *given, **named):
    if os.path.exists({str(run_folder / "now")!r}):
        die()
    look(self, *given, **named)
t.OverheadBudget.look = looked
"""
    with fake_rank(run_folder, prelude=in_agent(code), stderr=subprocess.PIPE) as job:
        job.send("steps 30")
        job.until(lambda now: 0 in now.steps and len(now.steps[0]) == 30, "the first steps")
        agent = agent_of(job)
        (run_folder / "now").touch()
        wait_for(lambda: is_gone(agent), "the end of the agent")
        job.send("steps 5")
        job.order("exit 6")
        assert job.process.stderr is not None
        said = job.process.stderr.read().decode()
        recording = job.end(6)
    name = signal.Signals(number).name
    assert said == f"rn50-advisor: the recording stopped: the agent was killed by {name}\n"
    assert (recording.meta.exit_code, len(recording.steps[0])) == (6, 30)
    assert not list((run_folder / "r").glob("*-wal"))
    (gap,) = [gap for gap in diagnose(recording).gaps if gap.metric == "recording"]
    assert f"the agent was killed by {name}" in gap.reason and " s after the start" in gap.reason


def test_an_agent_that_was_stopped_writes_down_the_end_all_the_same(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 3")
        job.until(lambda now: 0 in now.steps, "the first steps")
        agent = agent_of(job)
        os.kill(agent, signal.SIGSTOP)
        wait_for(lambda: state_of(agent) == "T", "the stop")
        job.send("steps 4")
        job.order("leave 3")
        recording = job.end(3)
    assert (recording.meta.exit_code, len(recording.steps[0])) == (3, 7)


def test_an_agent_that_takes_nothing_holds_up_neither_signals_nor_the_end(run_folder: Path) -> None:
    """Its pipe is full, of requests that the job does not obey."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    job = python(
        "import os, signal, sys\nseen = 0\ndef count(*_):\n    global seen\n    seen += 1\n    os.write(1, b'%d\\n' % seen)\n"
        "signal.signal(signal.SIGTERM, count)\nos.write(1, b'ready\\n')\nwhile seen < 30: signal.pause()\nsys.exit(4)"
    )
    prelude = "import rn50_advisor.advisor.run.companion as c; c._UNSENT_MAX = 100\n" + in_agent(code)
    options = {"close_within_s": 0.5}
    process = launch(run_folder / "r", job, prelude=prelude, options=options, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready\n")
        for number in range(30):
            process.terminate()
            read_until(process.stdout.fileno(), b"%d\n" % (number + 1))
        assert process.wait(DEADLINE_S) == 4


def test_the_agent_stops_and_goes_on_with_the_launcher_but_not_for_ever(run_folder: Path) -> None:
    with fake_rank(run_folder, start_new_session=True) as job:
        job.send("steps 1")
        job.until(lambda now: 0 in now.steps, "the first step")
        agent = agent_of(job)
        os.kill(job.process.pid, signal.SIGTSTP)
        os.kill(job.pid, signal.SIGSTOP)  # a group without a shell above it is not stopped by SIGTSTP
        wait_for(lambda: state_of(agent) == "T", "the stop of the agent")
        job.process.kill()
        wait_for(lambda: is_gone(agent), "the end of the agent")
        os.kill(job.pid, signal.SIGKILL)


def test_a_launcher_that_is_killed_leaves_a_run_that_says_so(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 3")
        job.until(lambda now: 0 in now.steps, "the first steps")
        agent = agent_of(job)
        job.process.kill()
        wait_for(lambda: is_gone(agent), "the end of the agent")
        meta = read_recording(job.run_folder).meta
        assert meta.ended_ns is None and "launcher was killed" in (meta.recording_stopped_reason or "")
        job.order("exit 0")
        wait_for(lambda: is_gone(job.pid), "the end of the job")


BROKEN = {
    "who got it": "import rn50_advisor.advisor.run.launch.group_canary as c; c.Canary.group_got = lambda *_, **__: 1 / 0",
    "the wait": "import rn50_advisor.advisor.run.launch.job_signals as s; s.SignalDesk.wait = lambda *_: 1 / 0",
    "the recording": "import rn50_advisor.advisor.run.companion as c; c.Companion.look = c.Companion.start = lambda *_: 1 / 0",
}


@pytest.mark.parametrize("prelude", BROKEN.values(), ids=BROKEN.keys())
def test_a_launcher_that_breaks_waits_for_the_job_and_passes_signals_on(run_folder: Path, prelude: str) -> None:
    job = python(
        "import os, signal, sys\nblocked = {signal.SIGTERM, signal.SIGUSR1}\nsignal.pthread_sigmask(signal.SIG_BLOCK, blocked)\n"
        "os.write(1, b'ready\\n')\nfor _ in range(2): os.write(1, b'%d\\n' % signal.sigwait(blocked))\nsys.exit(7)"
    )
    process = launch(run_folder / "r", job, prelude=prelude, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdout is not None
        read_until(process.stdout.fileno(), b"ready\n")
        process.send_signal(signal.SIGUSR1)
        read_until(process.stdout.fileno(), b"%d\n" % signal.SIGUSR1)
        process.terminate()
        assert process.wait(DEADLINE_S) == 7


ORPHANS = """
import os, subprocess, time
from pathlib import Path
for _ in range(5):
    subprocess.run(["/bin/sh", "-c", "/bin/true & exec /bin/true"], check=True)
sleeper = subprocess.run(["/bin/sh", "-c", "/bin/sleep 0.1 >/dev/null & echo $!"], stdout=subprocess.PIPE, text=True, check=True)
def zombies():  # names of the launcher's
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try: stat = (entry / "stat").read_text()
            except OSError: continue  # it ends meanwhile
            name, _, fields = stat.partition("(")[2].rpartition(")")
            state, parent = fields.split()[:2]
            if state == "Z" and int(parent) == os.getppid():
                yield name
deadline = time.monotonic() + 20
while (left := [*zombies()]) or Path("/proc", sleeper.stdout.strip()).exists():
    if time.monotonic() > deadline:
        break
    time.sleep(0.05)
print(left)
raise SystemExit(3)
"""
SUBREAPER = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)"


def test_a_subreaper_reaps_what_the_job_orphans_and_keeps_the_exit_code(run_folder: Path) -> None:
    done = run_to_end(run_folder / "r", python(ORPHANS), prelude=SUBREAPER)
    assert (done.returncode, done.stdout) == (3, b"[]\n")


def can_unshare() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_unshare(), reason="a pid namespace of its own needs root and unshare")
def test_the_first_process_of_a_container_reaps_what_the_job_orphans(run_folder: Path) -> None:
    job = python(ORPHANS)
    command = [
        "unshare",
        "--pid",
        "--fork",
        "--mount-proc",
        sys.executable,
        "-m",
        "rn50_advisor.advisor.cli",
        "run",
        "--run-dir",
    ]
    done = subprocess.run([*command, str(run_folder), "--", *job], capture_output=True, timeout=DEADLINE_S, check=False)
    assert (done.returncode, done.stdout) == (3, b"[]\n"), done.stderr
