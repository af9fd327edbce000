"""What is written of a run before it starts, and of one that never started or whose recording broke off."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.run import run_meta
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter

END = {"exit_code": None, "signal": 9, "t_ns": 9000}


@pytest.fixture
def plan(tmp_path: Path) -> RecordingPlan:
    return RecordingPlan(
        argv=("python", "train.py", "--api-key", "abcdef0123456789"),
        run_folder=tmp_path / "runs" / "first",
        name="",
        options=RunOptions(),
        ring_folder=None,
        began_ns=time.perf_counter_ns(),
        began_unix_s=1.7e9,
        launcher_pid=os.getpid(),
    )


def test_a_run_is_named_by_its_folder_unless_the_user_named_it(plan: RecordingPlan) -> None:
    assert run_meta.first_meta(plan)["name"] == "first"
    assert run_meta.first_meta(replace(plan, name="mine"))["name"] == "mine"


def test_a_run_says_whether_its_folder_gets_the_output(plan: RecordingPlan) -> None:
    assert run_meta.first_meta(plan)["output_kept"] is False
    assert run_meta.first_meta(replace(plan, output_kept=True))["output_kept"] is True


def test_secrets_of_the_command_line_and_the_environment_are_masked(
    plan: RecordingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abcdef0123456789")
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    meta = run_meta.first_meta(plan)
    assert "abcdef0123456789" not in str(meta)
    assert list(meta["argv"][:3]) == ["python", "train.py", "--api-key"]
    assert meta["environment"]["variables"]["NCCL_DEBUG"] == "INFO"
    assert (meta["host"], meta["started_unix_s"], meta["started_ns"]) == (os.uname().nodename, 1.7e9, plan.began_ns)


def test_a_working_directory_that_was_deleted_is_no_failure(
    plan: RecordingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    assert run_meta.first_meta(plan)["cwd"] == str(gone)
    gone.rmdir()
    assert run_meta.first_meta(plan)["cwd"] == "(deleted)"


def test_without_results_beside_the_runs_only_variables_are_kept(plan: RecordingPlan) -> None:
    assert set(run_meta.kept_environment(plan.run_folder)) == {"variables"}
    assert set(run_meta.kept_environment(None)) == {"variables"}


def test_startup_is_what_passed_since_the_launcher_began(plan: RecordingPlan) -> None:
    earlier, later = run_meta.startup_s(plan), run_meta.startup_s(replace(plan, began_ns=plan.began_ns + 3 * 10**9))
    assert earlier > 0.0
    assert later - earlier == pytest.approx(3.0, abs=1.0)
    assert run_meta.startup_s(replace(plan, began_ns=0)) == 0.0
    assert run_meta.startup_s(replace(plan, launcher_pid=1 << 30)) == 0.0


def test_a_recording_that_broke_off_gets_the_end_of_the_job(plan: RecordingPlan) -> None:
    assert plan.run_folder is not None
    writer = RunWriter.create(plan.run_folder, meta=run_meta.first_meta(plan))
    for pid in (50, 51):
        writer.put_process(Process(pid, "other", None, None, None, 1, "train", 1000))
    writer.commit()
    writer.close()
    run_meta.close_broken(plan, job_pid=50, reason="the agent was killed by SIGKILL", end=END)
    found = read_recording(plan.run_folder)
    assert (found.meta.exit_code, found.meta.exit_signal, found.meta.ended_ns) == (None, 9, 9000)
    assert found.meta.recording_stopped_reason == "the agent was killed by SIGKILL"
    assert {p.pid: (p.ended_ns, p.exit_signal) for p in found.processes} == {50: (9000, 9), 51: (None, None)}
    assert found.meta.recording_stopped_ns == found.meta.last_ns
