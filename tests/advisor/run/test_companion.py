"""The launcher's handle on the process that records: the job never waits for it nor fails with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.companion import Companion, warn
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for


def plan(folder: Path | None) -> RecordingPlan:
    return RecordingPlan(
        argv=("train",),
        run_folder=folder,
        name="",
        options=RunOptions(host_probes=False, stacks=False, close_within_s=30.0),
        ring_folder=None,
        began_ns=time.perf_counter_ns(),
        began_unix_s=time.time(),
        launcher_pid=os.getpid(),
    )


def recording(folder: Path) -> Companion:
    """Started, and heard to record; the job is this very process."""
    companion = Companion(plan(folder), os.getpid())
    companion.start()
    wait_for(lambda: companion.look() or (folder / "run.sqlite").exists(), "the first recording")
    return companion


def test_a_recording_ends_with_the_end_of_the_job(tmp_path: Path) -> None:
    companion = recording(tmp_path / "run")
    (pid,) = companion.pids()
    assert companion.descriptor is not None
    ended_ns = time.perf_counter_ns()
    assert companion.finish(3, None, ended_ns) == (True, None)
    assert companion.pids() == frozenset()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    meta = read_recording(tmp_path / "run").meta
    assert (meta.exit_code, meta.exit_signal, meta.ended_ns) == (3, None, ended_ns)


def test_a_recording_process_that_is_killed_leaves_the_end_and_since_when_nothing_was_watched(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    companion = recording(tmp_path / "run")
    until = time.monotonic() + 30
    while not companion._recorded and time.monotonic() < until:
        companion.look()
        time.sleep(0.01)
    companion.send_signal(signal.SIGKILL)
    ended_ns = time.perf_counter_ns()
    recorded, complaint = companion.finish(None, signal.SIGTERM, ended_ns)
    assert (recorded, complaint) == (True, "the recording stopped: the agent was killed by SIGKILL")
    meta = read_recording(tmp_path / "run").meta
    assert (meta.exit_signal, meta.ended_ns) == (signal.SIGTERM, ended_ns)
    assert meta.recording_stopped_reason == "the agent was killed by SIGKILL"
    assert capfd.readouterr().err == f"rn50-advisor: {complaint}\n"


def test_a_stopped_process_is_continued_to_write_the_end(tmp_path: Path) -> None:
    companion = recording(tmp_path / "run")
    companion.send_signal(signal.SIGSTOP)
    companion.asked_to_end(signal.SIGTERM)
    assert companion.finish(0, None, time.perf_counter_ns()) == (True, None)


def test_a_folder_that_cannot_be_made_is_reported_at_once_and_only_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    companion = Companion(plan(tmp_path / "file" / "run"), os.getpid())
    companion.start()
    recorded, complaint = companion.finish(0, None, time.perf_counter_ns())
    assert not recorded and complaint is not None and complaint.startswith("the job runs unrecorded: ")
    assert capfd.readouterr().err == f"rn50-advisor: {complaint}\n"


def test_without_a_run_folder_there_is_no_process() -> None:
    companion = Companion(plan(None), os.getpid())
    companion.start()
    companion.look()
    companion.asked_to_end(signal.SIGINT)
    companion.send_signal(signal.SIGSTOP)
    assert (companion.pids(), companion.descriptor) == (frozenset(), None)
    assert companion.finish(0, None, 5) == (False, None)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("two\nlines\tand  more", "rn50-advisor: two lines and more\n"),
        ("x" * 600, "rn50-advisor: " + "x" * 500 + "\n"),
        ("\udcff", "rn50-advisor: ?\n"),
        ("", "rn50-advisor: \n"),
    ],
)
def test_a_warning_is_one_short_line(line: str, written: str, capfd: pytest.CaptureFixture[str]) -> None:
    warn(line)
    assert capfd.readouterr().err == written
