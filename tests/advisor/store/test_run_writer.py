"""Rows written to a run file are read back, only the owner can read it, and a failed write goes no further than the writer."""

from __future__ import annotations

import contextlib
import math
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import Event, Process, Source
from rn50_advisor.advisor.store.retention import Limits
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RecordingStopped, RunWriter
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START, KIND_BATCH, KIND_COMM, KIND_GPU_STEP, KIND_SPAN, KIND_STEP
from store_rows import MS, T0_NS, batch_row, comm_row, gpu_row, make_read_only, small_disk, span_row, step_row


def write_until_it_stops(writer: RunWriter) -> RecordingStopped:
    with pytest.raises(RecordingStopped) as stopped:
        for number in range(100_000):
            writer.put_records(KIND_STEP, 0, [step_row(number * 50 + step) for step in range(50)])
            writer.commit()
    return stopped.value


def test_everything_put_comes_back(tmp_path: Path) -> None:
    writer = RunWriter.create(
        tmp_path / "a-run", meta={"argv": ["python", "t.py"], "started_ns": 5, "agent": {"cpu_s": 0.5}}
    )
    rank = Process(10, "rank", 1, 0, None, 9, "python t.py", 6)
    worker = Process(11, "worker", 1, None, 3, 10, "python t.py", 7)
    ended = Process(10, "rank", 1, 0, None, 9, "python t.py", 6, 99, None, 9, False, True)
    event = Event(50, "stall", 10, 1, {"stacks": ["train.py:12"]})
    gaps = (ProbeGap("gpu.power_w", "gpu:0", "no driver", "install it"), ProbeGap("psi.io_some_s", "host", "newer"))
    writer.put_process(rank)
    writer.put_process(worker)
    writer.put_process(ended)
    writer.put_facts(10, {"loaders": [{"num_workers": 2}]})
    writer.put_records(KIND_STEP, 1, [step_row(0, flags=FLAG_EPOCH_START), step_row(1)])
    writer.put_records(KIND_GPU_STEP, 1, [gpu_row(1)])
    writer.put_records(KIND_COMM, 1, [comm_row(1)])
    writer.put_records(KIND_SPAN, 1, [span_row("checkpoint", 1, 3, 4)])
    writer.put_records(KIND_BATCH, 1, [batch_row(2), batch_row(1)], pid=11)
    writer.put_samples(20, [Sample("cpu.busy_s", "host", 1.5), Sample("proc.cpu_s", "pid:10", math.nan)])
    writer.put_samples(30, [Sample("cpu.busy_s", "host", 2.5), Sample("proc.cpu_s", "pid:10", 3.0)])
    writer.put_event(event)
    writer.put_gap(ProbeGap("psi.io_some_s", "host", "older"))
    for gap in gaps:
        writer.put_gap(gap)
    writer.put_position(1, "forward", 1, 40)
    writer.put_position(1, "backward", 1, 44)
    writer.put_meta(ended_ns=100, exit_code=3)
    writer.close()

    recording = read_recording(tmp_path / "a-run")
    meta = recording.meta
    assert (meta.name, meta.argv, meta.started_ns, meta.ended_ns, meta.exit_code) == (
        "a-run",
        ("python", "t.py"),
        5,
        100,
        3,
    )
    assert meta.agent == {"cpu_s": 0.5}
    assert meta.recording_stopped_ns is None
    assert recording.processes == (ended, worker)
    assert recording.facts == {10: {"loaders": [{"num_workers": 2}]}}
    steps = recording.steps[1]
    assert steps["step"].tolist() == [0, 1]
    assert steps["flags"].tolist() == [FLAG_EPOCH_START, 0]
    assert steps["count"].tolist() == [1, 1]
    assert steps["t_end_ns"].tolist() == [T0_NS + 10 * MS, T0_NS + 20 * MS]
    assert {steps.dtype[name].str for name in steps.dtype.names or ()} == {"<i8"}
    assert recording.gpu_steps[1]["forward_ns"].tolist() == [3 * MS]
    assert recording.comm[1]["comm_ns"].tolist() == [MS]
    assert recording.spans[1]["t_end_ns"].tolist() == [4]
    batches = recording.batches[1]
    assert (batches["pid"].tolist(), batches["t_end_ns"].tolist()) == ([11, 11], [T0_NS + 10 * MS, T0_NS + 20 * MS])
    busy = recording.samples["cpu.busy_s", "host"]
    assert (busy.t_ns.tolist(), busy.value.tolist()) == ([20, 30], [1.5, 2.5])
    assert recording.samples["proc.cpu_s", "pid:10"].t_ns.tolist() == [30]  # NaN is no reading
    assert recording.events == (event,)
    assert recording.gaps == gaps
    assert recording.positions == {1: ("backward", 1, 44)}


def test_names_that_are_no_text_cost_nobody_the_recording(tmp_path: Path) -> None:
    """Arguments and paths are bytes, and Python keeps those that are no UTF-8 as lone surrogates."""
    odd = "bilder-\udce4"
    writer = RunWriter.create(tmp_path / "run", meta={"argv": ["t.py", odd], "cwd": f"/{odd}"})
    writer.put_process(Process(10, "rank", 0, 0, None, 9, f"python t.py {odd}", 6))
    writer.put_facts(10, {"loaders": [{"root": odd}]})
    writer.put_samples(20, [Sample("disk.read_bytes", odd, 1.5)])
    writer.put_event(Event(50, "stall", 10, 0, {"stacks": [odd]}))
    writer.put_gap(ProbeGap("mount", odd, odd, odd))
    assert writer.put_source(Source(f"/{odd}.py", "0", f"name = {odd!r}\n"))
    writer.close()
    recording = read_recording(tmp_path / "run")
    assert recording.meta.argv == ("t.py", odd) and recording.meta.cwd == f"/{odd}"
    assert recording.facts[10]["loaders"] == [{"root": odd}]
    assert recording.processes[0].command.startswith("python t.py bilder-")
    assert len(recording.samples) == len(recording.events) == len(recording.gaps) == 1


def test_only_the_owner_can_read_a_run_while_it_is_written_and_after(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_STEP, 0, [step_row(0)])
    writer.commit()
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()}
    assert set(modes) > {"run.sqlite", "run.sqlite-wal", "run.sqlite-shm"}
    assert set(modes.values()) == {0o600}
    writer.close()
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["run.sqlite"]


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    with pytest.raises(UsageError, match="another advisor is recording"):
        RunWriter.create(tmp_path / "run", meta={})
    writer.put_meta(cwd="/x")
    writer.close()
    with pytest.raises(UsageError, match="already holds a run"):
        RunWriter.create(tmp_path / "run", meta={})
    assert [file.name for file in (tmp_path / "run").iterdir()] == ["run.sqlite"]
    assert read_recording(tmp_path / "run").meta.cwd == "/x"


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    RunWriter.create(tmp_path / "shared", meta={}).close()
    assert stat.S_IMODE((tmp_path / "shared").stat().st_mode) == 0o755


def test_batches_need_the_pid_of_their_worker(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    with pytest.raises(ValueError, match="pid"):
        writer.put_records(KIND_BATCH, 0, [batch_row(0)])
    writer.close()


def test_after_close_the_writer_is_quiet(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.close()
    writer.put_meta(exit_code=1)
    writer.put_records(KIND_STEP, 0, [step_row(0)])
    writer.commit()
    writer.close()
    assert read_recording(tmp_path / "run").steps == {}


@pytest.mark.parametrize("size", ["1m", "2m", "3m", "5m"])  # the first checkpoint is not due, fails, succeeds
def test_a_full_disk_stops_the_recording_which_says_since_when(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        ticks = iter(range(1000, 10**9))
        meta = {"environment": {"gpus": ["x" * 200] * 20}}
        unfolded = Limits(raw_steps=10**9)
        writer = RunWriter.create(disk / "run", meta=meta, limits=unfolded, clock=lambda: next(ticks))
        stopped = write_until_it_stops(writer)
        assert "is full" in stopped.reason
        assert isinstance(stopped, AdvisorError)

        recording = read_recording(disk / "run")
        steps = recording.steps[0]["step"]
        assert len(steps) > 500
        assert steps.tolist() == list(range(len(steps)))
        assert recording.meta.recording_stopped_reason == stopped.reason
        assert recording.meta.recording_stopped_ns is not None
        assert 1000 < recording.meta.recording_stopped_ns < next(ticks)

        # quiet from now on; what the run's end says still finds its way
        writer.put_records(KIND_STEP, 0, [step_row(0)])
        writer.put_samples(1, [Sample("cpu.busy_s", "host", 1.0)])
        writer.put_event(Event(1, "death", None, None, {}))
        writer.put_meta(exit_code=7)
        writer.commit()
        writer.close()
        after = read_recording(disk / "run")
        assert after.meta.exit_code == 7
        assert after.meta.recording_stopped_ns == recording.meta.recording_stopped_ns
        assert len(after.steps[0]) == len(steps)


def test_a_disk_that_somebody_else_fills_stops_the_recording_with_a_note(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "2m") as disk:
        writer = RunWriter.create(disk / "run", meta={})
        writer.put_records(KIND_STEP, 0, [step_row(0)])
        writer.commit()
        with (disk / "hog").open("wb", buffering=0) as hog, contextlib.suppress(OSError):
            while hog.write(b"x" * 4096):
                pass
        writer.put_meta(exit_code=3)  # lies in memory until the commit
        stopped = write_until_it_stops(writer)
        meta = read_recording(disk / "run").meta
        assert (meta.recording_stopped_reason, meta.exit_code) == (stopped.reason, 3)
        writer.close()


@pytest.mark.parametrize("size", ["64k", "200k"])  # no room for the spare, none for the tables
def test_a_disk_that_is_full_from_the_start_is_a_recording_stopped(tmp_path: Path, size: str) -> None:
    with small_disk(tmp_path / "disk", size) as disk:
        with pytest.raises(RecordingStopped, match="is full"):
            RunWriter.create(disk / "run", meta={})
        assert list((disk / "run").iterdir()) == []


@pytest.mark.parametrize("lost", ["folder", "file"])
def test_a_run_that_vanishes_stops_the_recording(tmp_path: Path, lost: str) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_STEP, 0, [step_row(0)])
    writer.commit()
    if lost == "folder":
        shutil.rmtree(tmp_path / "run")
    else:
        (tmp_path / "run" / "run.sqlite").unlink()
    writer.put_records(KIND_STEP, 0, [step_row(1)])
    with pytest.raises(RecordingStopped, match=f"run {lost} .*vanished"):
        writer.commit()
    writer.commit()
    writer.close()
    assert not (tmp_path / "run" / "run.sqlite").exists()


def test_a_read_only_disk_is_a_recording_stopped(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        make_read_only(disk)
        with pytest.raises(RecordingStopped, match="is read-only"):
            RunWriter.create(disk / "run", meta={})


def test_the_last_commit_may_be_the_one_that_fails(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        writer = RunWriter.create(disk / "run", meta={})
        writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(20_000)])
        writer.put_meta(exit_code=5)
        with pytest.raises(RecordingStopped):
            writer.close()
        writer.close()
        meta = read_recording(disk / "run").meta
        assert meta.exit_code == 5
        assert "is full" in (meta.recording_stopped_reason or "")


ENDLESS_WRITER = """
import sys
from pathlib import Path
from store_rows import step_row
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP

writer = RunWriter.create(Path(sys.argv[1]), meta={"name": "x"})
for number in range(10**9):
    writer.put_records(KIND_STEP, 0, [step_row(number * 20 + step) for step in range(20)])
    writer.put_samples(number, [Sample("cpu.busy_s", "host", float(number))])
    writer.commit()
    print(number, flush=True)
"""


@pytest.mark.parametrize("commits", [1, 7, 60, 400])
def test_a_killed_writer_loses_no_more_than_its_last_commit(tmp_path: Path, commits: int) -> None:
    command = [sys.executable, "-c", ENDLESS_WRITER, str(tmp_path / "run")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)}
    ) as process:
        assert process.stdout is not None
        seen = [int(process.stdout.readline()) for _ in range(commits)][-1]
        process.send_signal(signal.SIGKILL)  # wherever it is by now
        rest = [int(line) for line in process.stdout.read().split() if line.strip()]
    committed = (rest or [seen])[-1] + 1

    recording = read_recording(tmp_path / "run")
    steps = recording.steps[0]["step"].tolist()
    assert steps == list(range(len(steps)))
    # the line of the last commit may not have come out
    assert len(steps) in (20 * committed, 20 * (committed + 1))
    assert len(recording.samples["cpu.busy_s", "host"].t_ns) * 20 == len(steps)
