"""Run files of jobs that live and die in all ways; nothing in the recording can harm the job."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fake_job import FAKE_RANK, QUICK, Job, fake_rank
from launcher_harness import PYTHON, in_agent, is_gone, killed_at_end, launch, python, run_to_end
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.recording import Process, Recording
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for


def process_of(recording: Recording, pid: int) -> Process:
    return next(p for p in recording.processes if p.pid == pid)


def events(recording: Recording, kind: str) -> list[Any]:
    return [event for event in recording.events if event.kind == kind]


def test_steps_written_up_to_the_last_moment_are_all_there(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 100")
        job.until(lambda now: 0 in now.steps, "the first steps")
        job.send("steps 300")
        job.order("leave")
        recording = job.end(0)
    assert recording.steps[0]["step"].tolist() == list(range(400))
    me = process_of(recording, job.pid)
    assert (me.role, me.rank, me.exit_code, me.exit_signal, me.clean_exit) == ("rank", 0, 0, None, True)
    assert (recording.meta.exit_code, recording.meta.ended_ns is not None) == (0, True)
    assert recording.positions[0][1] == 400


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_killed_rank_is_recorded_with_its_signal_and_its_last_steps(run_folder: Path, number: int) -> None:
    with fake_rank(run_folder, rank=3) as job:
        job.send("steps 7")
        job.until(lambda now: 3 in now.steps, "the first steps")
        job.send("steps 5")
        job.order(f"die {int(number)}")
        recording = job.end(-number)
    assert len(recording.steps[3]) == 12
    me = process_of(recording, job.pid)
    assert (me.exit_code, me.exit_signal, me.clean_exit, me.oom_killed) == (None, number, False, False)
    death = events(recording, "death")[0]
    assert (death.rank, death.data["signal"], death.data["first"]) == (3, number, True)


def test_a_job_that_trains_and_execs_into_a_second_training_has_not_vanished(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 7")
        job.until(lambda now: 0 in now.steps, "the first steps")
        job.order("exec")
        assert job.answer("pid") == f"pid {job.pid}"
        job.send("steps 5")
        job.order("leave")
        recording = job.end(0)
    lives = [process for process in recording.processes if process.pid == job.pid]
    assert [(life.role, life.rank, life.clean_exit) for life in lives] == [("rank", 0, True)] * 2
    assert [death.data["orderly"] for death in events(recording, "death")] == [True, True]
    assert len(recording.steps[0]) == 12


def test_who_is_asked_to_end_is_written_down(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 30")
        job.until(lambda now: 0 in now.steps, "the first steps")
        for number in (signal.SIGWINCH, signal.SIGTERM):
            job.process.send_signal(number)
        recording = job.end(-signal.SIGTERM)
    assert [event.data for event in events(recording, "asked_to_end")] == [{"signal": signal.SIGTERM}]
    given = analyse(recording)
    assert len(given.asked_to_end_s) == 1 and 0.0 < given.asked_to_end_s[0] < given.duration_s
    assert given.stopped_from_outside


def test_a_rank_below_a_shell_is_distinguished_from_it_and_its_exit_code_is_seen(run_folder: Path) -> None:
    """Its parent reaps it at once: only somebody who waits for the death sees the code, and before Linux 6.13 not each time."""
    seen = [rank_below_a_shell(run_folder / str(number)) for number in range(3)]
    while 9 not in seen and len(seen) < 12:
        seen.append(rank_below_a_shell(run_folder / str(len(seen))))
    assert 9 in seen and set(seen) <= {9, None}


def rank_below_a_shell(folder: Path) -> int | None:
    """The recorded exit code of a rank that ended with 9."""
    inner = f"{PYTHON} {FAKE_RANK} -1 0; echo shell got $?; exit 40"
    process = launch(folder, ["/bin/sh", "-c", inner], stdin=subprocess.PIPE, stdout=subprocess.PIPE, options=QUICK)
    with killed_at_end(process):
        job = Job(process, folder)
        job.send("steps 5")
        job.until(lambda now: 0 in now.steps, "the first steps")
        job.order("exit 9")
        job.answer("shell got 9")
        recording = job.end(40)
    shell = next(p for p in recording.processes if p.role == "other" and "/bin/sh" in p.command)
    assert shell.exit_code == 40
    rank = process_of(recording, job.pid)
    assert rank.role == "rank", recording.processes
    return rank.exit_code


def test_a_workers_batches_wait_until_its_parent_has_become_a_rank(run_folder: Path) -> None:
    with fake_rank(run_folder, rank=2) as job:
        job.send("worker")
        job.until(lambda now: any(p.role == "worker" for p in now.processes), "the worker")
        assert not read_recording(job.run_folder).batches
        job.send("steps 3")
        recording = job.until(lambda now: now.batches and now, "its batches")
        worker = next(p for p in recording.processes if p.role == "worker")
        assert (worker.rank, worker.worker, worker.parent_pid) == (2, 0, job.pid)
        assert set(recording.batches[2]["pid"]) == {worker.pid}
        os.kill(worker.pid, signal.SIGKILL)
        recording = job.until(lambda now: process_of(now, worker.pid).ended_ns and now, "its death")
        assert process_of(recording, worker.pid).exit_signal == signal.SIGKILL
        job.order("leave")
        job.end(0)


def test_rings_of_the_dead_make_room(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 1", "worker", wanted="ok")
        recording = job.until(lambda now: any(p.role == "worker" for p in now.processes) and now, "the worker")
        worker = next(p for p in recording.processes if p.role == "worker").pid
        ring = next(Path("/dev/shm").glob(f"rn50-advisor-{job.process.pid}-*/worker-{worker}.ring"))
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: not ring.exists(), "the removal of its ring")
        job.order("leave")
        job.end(0)


def test_grandchildren_are_followed_and_survivors_are_named_but_not_killed(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        child = int(job.send("child own", wanted="child ").split()[1])
        job.answer("ok")
        try:
            job.until(lambda now: any(p.pid == child for p in now.processes), "the grandchild")
            job.order("exit 0")
            recording = job.end(0)
            assert not is_gone(child)
            (left,) = events(recording, "left_running")
            assert [p["pid"] for p in left.data["processes"]] == [child]
            assert process_of(recording, child).ended_ns is None
        finally:
            os.kill(child, signal.SIGKILL)


def test_facts_are_kept_with_what_their_data_lies_on(run_folder: Path, tmp_path: Path) -> None:
    with fake_rank(run_folder) as job:
        job.send("steps 1", f'facts {{"loaders":[{{"id":0,"dataset":{{"root":"{tmp_path}"}}}}]}}')
        recording = job.until(lambda now: now.facts.get(job.pid, {}).get("mounts") and now, "facts with a mount")
        assert recording.facts[job.pid]["mounts"][str(tmp_path)]["mount_point"]
        job.order("leave")
        job.end(0)


def test_a_foreign_file_among_the_rings_is_a_gap(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        folder = next(Path("/dev/shm").glob(f"rn50-advisor-{job.process.pid}-*"))
        (folder / "rank-99999998.ring").write_bytes(b"nonsense")
        (folder / "facts-99999998.json").write_text("[")
        (folder / "error-99999998.txt").write_text("ValueError: odd torch\n")
        os.mkfifo(folder / "rank-99999999.ring")
        job.send("steps 2")
        job.order("leave")
        recording = job.end(0)
    gaps = {(gap.metric, gap.scope): gap.reason for gap in recording.gaps}
    assert ("ring", "rank-99999998.ring") in gaps and ("ring", "rank-99999999.ring") in gaps
    assert ("facts", "pid:99999998") in gaps
    assert "odd torch" in gaps["recorder", "pid:99999998"]
    assert len(recording.steps[0]) == 2


def test_a_stall_is_recorded_with_the_line_it_hangs_at_and_its_end(run_folder: Path) -> None:
    with fake_rank(run_folder, rank=1) as job:
        job.send("steps 20")
        job.send("phase backward", wanted="holding")
        recording = job.until(lambda now: len(events(now, "stall")) > 1 and now, "a second report of the stall")
        first, again = events(recording, "stall")[:2]
        assert first.data["id"] == again.data["id"]
        assert again.data["stalled_s"] > first.data["stalled_s"] >= 0.6
        (rank,) = first.data["ranks"]
        assert (rank["rank"], rank["pid"], rank["phase"], rank["step"], rank["state"]) == (
            1,
            job.pid,
            "backward",
            20,
            "S",
        )
        assert rank["user"]["function"] == "hold_here"
        assert rank["user"]["file"].endswith("fake_rank.py")
        job.send("", "steps 1")
        job.until(lambda now: events(now, "stall_end"), "the end of the stall")
        job.order("leave")
        job.end(0)


def test_time_outside_the_model_is_looked_into(run_folder: Path) -> None:
    with fake_rank(run_folder, gap_ms=5) as job:
        job.send("steps 20")
        job.until(lambda now: 0 in now.steps, "the first steps")
        job.send("phase gap", wanted="holding")
        recording = job.until(lambda now: events(now, "stack") and now, "a stack sample")
        sample = events(recording, "stack")[0]
        assert (sample.rank, sample.pid, sample.data["phase"], sample.data["step"]) == (0, job.pid, "gap", 20)
        assert sample.data["user"]["function"] == "hold_here"
        assert sample.data["frames"][0]["function"]
        assert sample.data["phase_for_s"] >= 0
        job.send("")
        job.order("leave")
        job.end(0)


def test_without_stacks_a_stall_is_recorded_all_the_same(run_folder: Path) -> None:
    with fake_rank(run_folder, options={"stacks": False}) as job:
        job.send("steps 20")
        job.send("phase gap", wanted="holding")
        recording = job.until(lambda now: events(now, "stall") and now, "a stall")
        assert "frames" not in events(recording, "stall")[0].data["ranks"][0]
        assert not events(recording, "stack")
        job.send("")
        job.order("leave")
        job.end(0)


def test_a_job_that_never_trains_says_why_there_are_no_steps(run_folder: Path) -> None:
    run_to_end(run_folder / "r", python("pass"))
    gap = next(gap for gap in read_recording(run_folder / "r").gaps if gap.metric == "steps")
    assert "python -I" in gap.hint


def test_what_the_advisor_cost_is_noted(run_folder: Path) -> None:
    with fake_rank(run_folder) as job:
        for _ in range(3):
            job.send("steps 1")
            before = read_recording(job.run_folder).meta.last_ns if job.recording() else 0
            job.until(lambda now, before=before: now.meta.last_ns > before, "another second")
        job.order("leave")
        agent = job.end(0).meta.agent
    assert 0 < agent["cpu_s"] < agent["wall_s"]
    assert 0 < agent["startup_s"] < 30
    assert agent["lost_records"] == 0
    assert agent["polls"] >= 2


@pytest.mark.parametrize("secret", ["hunter2hunter2"])
def test_secrets_on_the_command_line_are_not_stored(run_folder: Path, secret: str) -> None:
    run_to_end(
        run_folder / "r", ["/bin/sh", "-c", "sleep 0.3", "--api-key", secret], env={**os.environ, "MY_TOKEN": secret}
    )
    assert secret.encode() not in b"".join(path.read_bytes() for path in (run_folder / "r").iterdir())


BROKEN_AGENTS = {
    "import": in_agent("import sys; sys.modules['rn50_advisor.advisor.run.agent'] = None"),
    "poll": in_agent("import rn50_advisor.advisor.run.rings.ring_followers as f; f.Followers.look = lambda *_: 1 / 0"),
    "second": in_agent("import rn50_advisor.advisor.run.sidefiles.rank_notes as n; n.Notes.read = lambda *_: 1 / 0"),
    "thread": in_agent(
        "import threading; threading.Thread.start = lambda *_: (_ for _ in ()).throw(RuntimeError('no thread'))"
    ),
}


@pytest.mark.parametrize("prelude", BROKEN_AGENTS.values(), ids=BROKEN_AGENTS.keys())
def test_an_agent_that_breaks_costs_one_line_and_not_the_job(run_folder: Path, prelude: str) -> None:
    done = run_to_end(run_folder / "r", python("print('done'); raise SystemExit(5)"), prelude=prelude)
    assert (done.returncode, done.stdout) == (5, b"done\n")
    assert done.stderr.startswith(b"rn50-advisor: ")
    assert done.stderr.count(b"\n") == 1


def test_an_agent_that_breaks_says_so_in_the_run_too(run_folder: Path) -> None:
    with fake_rank(run_folder, prelude=BROKEN_AGENTS["poll"]) as job:
        job.until(lambda now: events(now, "agent_crash"), "the break")
        job.order("exit 0")
        recording = job.end(0)
    assert any(gap.metric == "agent" and "ZeroDivisionError" in gap.reason for gap in recording.gaps)
    assert (recording.meta.exit_code, recording.meta.ended_ns is None) == (0, False), (
        "the end of the job is recorded all the same"
    )


def test_an_agent_that_never_answers_does_not_hold_the_exit_up(run_folder: Path) -> None:
    prelude = in_agent(
        "import threading, rn50_advisor.advisor.run.rings.ring_followers as f; f.Followers.look = lambda *_: threading.Event().wait()"
    )
    done = run_to_end(
        run_folder / "r", ["/bin/sh", "-c", "sleep 0.3; exit 3"], prelude=prelude, options={"close_within_s": 0.5}
    )
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_ends_the_recording_and_not_the_job(run_folder: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(run_folder)], check=False)
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        with fake_rank(run_folder, stderr=subprocess.PIPE) as job:
            for _ in range(40):
                job.send("steps 500")
            job.until(lambda now: now.meta.recording_stopped_ns, "the end of the recording")
            job.send("steps 1")
            job.order("leave 6")
            assert job.process.stderr is not None
            err = job.process.stderr.read()
            recording = job.end(6)
        assert recording.meta.recording_stopped_reason and "full" in recording.meta.recording_stopped_reason
        assert recording.meta.exit_code == 6  # there was room left for that
        assert err.count(b"\n") == 1 and b"recording stopped" in err
    finally:
        subprocess.run(["umount", "-l", str(run_folder)], check=True)
