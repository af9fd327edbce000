"""Jobs that fail before they train, or behind the screen: the reason is in the report."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_launcher_supervised import supervised

from cli_process import advisor
from launcher_harness import launch, python
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from waiting import DEADLINE_S


@pytest.mark.torch
def test_an_exception_before_the_first_step_is_reported_without_any_output(tmp_path: Path) -> None:
    text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB"
    job = f"import torch\nraise torch.OutOfMemoryError({text!r})"
    done = advisor("run", "--no-tui", "--", sys.executable, "-c", job, cwd=tmp_path)
    assert done.returncode == 1
    report = json.loads(advisor("report", "--format", "json", cwd=tmp_path).stdout)
    assert (report["verdict"]["state"], report["verdict"]["rule"]) == ("failed", "RUN002")
    assert "the GPU's memory ran out (asked for 2.00 GiB)" in report["verdict"]["title"]
    (gap,) = [gap for gap in report["gaps"] if gap["metric"] == "output"]
    assert "are not kept" in gap["reason"] and gap["hint"]


def test_the_failure_of_a_job_behind_the_screen_is_read_from_its_output(run_folder: Path) -> None:
    lines = "[W socket.cpp:401] [c10d] The server socket has failed to listen on [::]:29500 (errno: 98 - Address already in use)."
    code = f"import sys; print('begin'); print({lines!r}, file=sys.stderr); sys.exit(3)"
    with supervised(run_folder, python(code)) as handle:
        assert handle.wait(DEADLINE_S).exit_code == 3
    recording = read_recording(run_folder / "r")
    (kept,) = [event.data["lines"] for event in recording.events if event.kind == "output"]
    assert kept == ["begin", lines]
    assert "the rendezvous port is already in use" in diagnose(recording).verdict.title


def test_the_failure_of_a_job_whose_stderr_is_a_file_is_read_from_that_file(run_folder: Path, tmp_path: Path) -> None:
    lines = "RuntimeError: CUDA error: device-side assert triggered"
    with (tmp_path / "log").open("wb") as log:
        job = launch(run_folder, python(f"import sys; print({lines!r}, file=sys.stderr); sys.exit(3)"), stderr=log)
        assert job.wait(DEADLINE_S) == 3
    found = diagnose(read_recording(run_folder))
    assert "a kernel's assertion failed on the GPU" in found.verdict.title
    assert not [gap for gap in found.gaps if gap.metric == "output"]


def test_what_a_job_prints_that_ends_well_is_not_kept_in_the_run(run_folder: Path) -> None:
    with supervised(run_folder, python("print('error: none')")) as handle:
        assert handle.wait(DEADLINE_S).exit_code == 0
    assert not [event for event in read_recording(run_folder / "r").events if event.kind == "output"]


def test_what_nccl_prints_into_a_log_is_read_from_where_the_job_starts(run_folder: Path, tmp_path: Path) -> None:
    line = "node:9:9 [0] NCCL INFO Using network {}"
    (tmp_path / "slurm.out").write_text(line.format("IB") + "\n")
    with (tmp_path / "slurm.out").open("ab") as log:
        job = launch(run_folder, python(f"print({line.format('Socket')!r})"), stdout=log)
        assert job.wait(DEADLINE_S) == 0
    (said,) = [event.data["lines"] for event in read_recording(run_folder).events if event.kind == "nccl_log"]
    assert said == [line.format("Socket")]
