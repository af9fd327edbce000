"""`cut` gives a recording as it was at an earlier moment, and knows nothing of what came later."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import Event, Process, Recording
from rn50_advisor.advisor.store.retention import Limits
from rn50_advisor.advisor.store.run_reader import cut, read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_BATCH, KIND_COMM, KIND_GPU_STEP, KIND_SPAN, KIND_STEP
from store_rows import MS, T0_NS, batch_row, comm_row, gpu_row, span_row, step_row

END_NS = T0_NS + 1500 * MS
RANK = Process(10, "rank", 0, 0, None, 9, "t.py", T0_NS - 100 * MS, T0_NS + 1400 * MS, None, 9, False, True)
LATE_WORKER = Process(11, "worker", 0, None, 0, 10, "t.py", T0_NS + 600 * MS)


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """100 steps of 10 ms, 30 ms of evaluation after step 49, killed 400 ms after the last step, in `forward` of step 100."""
    writer = RunWriter.create(tmp_path / "run", meta={"started_ns": T0_NS - 500 * MS}, clock=lambda: END_NS)
    later = [step_row(step, start_ns=T0_NS + (step * 10 + (30 if step > 49 else 0)) * MS) for step in range(100)]
    writer.put_records(KIND_STEP, 0, later)
    writer.put_records(KIND_GPU_STEP, 0, [gpu_row(step) for step in range(100)])
    writer.put_records(KIND_COMM, 0, [comm_row(step) for step in range(0, 100, 20)])
    writer.put_records(KIND_SPAN, 0, [span_row("evaluation", 49, T0_NS + 500 * MS, T0_NS + 530 * MS)])
    writer.put_records(KIND_BATCH, 0, [batch_row(number) for number in range(100)], pid=11)
    for tick in range(15):
        writer.put_samples(T0_NS + tick * 100 * MS, [Sample("cpu.busy_s", "host", float(tick))])
    writer.put_samples(T0_NS + 900 * MS, [Sample("gpu.power_w", "gpu:0", 300.0)])
    writer.put_process(RANK)
    writer.put_process(LATE_WORKER)
    writer.put_facts(10, {"world_size": 1})
    writer.put_facts(11, {"worker": 0})
    writer.put_event(Event(T0_NS + 1400 * MS, "death", 10, 0, {}))
    writer.put_gap(ProbeGap("gpu.temp_c", "gpu:0", "no driver"))
    writer.put_position(0, "forward", 100, T0_NS + 1032 * MS)
    writer.put_meta(
        ended_ns=T0_NS + 1450 * MS, exit_code=137, recording_stopped_ns=T0_NS + 1450 * MS, recording_stopped_reason="x"
    )
    writer.close()
    return read_recording(tmp_path / "run")


def test_nothing_of_the_future_is_left(recording: Recording) -> None:
    early = cut(recording, T0_NS + 505 * MS)
    assert early.steps[0]["step"].tolist() == list(range(50))
    assert early.gpu_steps[0]["step"].tolist() == list(range(50))
    assert early.comm[0]["step"].tolist() == [0, 20, 40]
    assert early.spans == {}
    assert len(early.batches[0]) == 51
    assert early.samples.keys() == {("cpu.busy_s", "host")}
    assert early.samples["cpu.busy_s", "host"].value.tolist() == [0, 1, 2, 3, 4, 5]
    assert early.events == ()
    (process,) = early.processes
    assert (process.pid, process.ended_ns, process.exit_signal, process.clean_exit, process.oom_killed) == (
        10,
        None,
        None,
        None,
        False,
    )
    assert early.facts.keys() == {10}
    assert early.gaps == recording.gaps
    meta = early.meta
    assert (meta.last_ns, meta.ended_ns, meta.exit_code, meta.recording_stopped_ns) == (
        T0_NS + 505 * MS,
        None,
        None,
        None,
    )
    assert meta.recording_stopped_reason is None


def test_at_its_end_a_recording_is_all_there(recording: Recording) -> None:
    late = cut(recording, END_NS)
    assert late.meta == recording.meta
    assert late.processes == recording.processes
    assert (late.events, late.positions, late.facts) == (recording.events, recording.positions, recording.facts)
    for table in ("steps", "gpu_steps", "comm", "spans", "batches"):
        assert getattr(late, table)[0].tolist() == getattr(recording, table)[0].tolist()


def test_before_anything_happened_there_is_nothing(recording: Recording) -> None:
    before = cut(recording, T0_NS - 400 * MS)
    assert (before.steps, before.samples, before.processes, before.positions) == ({}, {}, (), {})


@pytest.mark.parametrize(
    ("at_ms", "position"),
    [
        (-50, ("start", 0, -100)),
        (0, ("input_wait", 0, 0)),
        (1, ("input_wait", 0, 0)),
        (2, ("forward", 0, 2)),
        (4, ("forward", 0, 2)),
        (5, ("backward", 0, 5)),
        (9, ("optimizer", 0, 9)),
        (27, ("backward", 2, 25)),
        (510, ("evaluation", 49, 500)),
        (531, ("input_wait", 50, 530)),
        (1031, ("gap", 100, 1030)),
        (1032, ("forward", 100, 1032)),
        (1400, ("forward", 100, 1032)),
    ],
)
def test_the_position_of_a_rank_follows_from_the_step_or_span_under_way(
    recording: Recording, at_ms: int, position: tuple[str, int, int]
) -> None:
    phase, step, since_ms = position
    assert cut(recording, T0_NS + at_ms * MS).positions == {0: (phase, step, T0_NS + since_ms * MS)}


def test_the_position_within_a_window_is_that_of_its_mean_step(tmp_path: Path) -> None:
    limits = Limits(raw_steps=50, slice_rows=64)
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=limits)
    for first in range(0, 1000, 50):
        writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(first, first + 50)])
        writer.commit()
    writer.close()
    recording = read_recording(tmp_path / "run")
    assert recording.steps[0]["count"][0] == 100
    assert cut(recording, T0_NS + 427 * MS).positions == {0: ("backward", 42, T0_NS + 425 * MS)}
