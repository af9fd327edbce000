"""Old rows are folded or thinned: sums stay true, ranks stay comparable, what stands out stays, and the file stops growing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.advisor.store.database import create_database
from rn50_advisor.advisor.store.retention import SECOND_NS, Limits, Retention
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.step_folding import COLUMNS
from rn50_advisor.probes.rank.layout import (
    FLAG_EPOCH_START,
    KIND_BATCH,
    KIND_COMM,
    KIND_GPU_STEP,
    KIND_SPAN,
    KIND_STEP,
    SPAN_CODE,
    STEP_FIELDS,
)
from store_rows import MS, T0_NS, Row, batch_row, comm_row, gpu_row, span_row, step_row

SMALL = Limits(
    raw_steps=200,
    windows=100,
    raw_samples_ns=100 * SECOND_NS,
    raw_samples=10**9,
    thin_samples=10**9,
    thinned={
        "gpu_steps": (200, 100, 3),
        "comm": (200, 100, 1),
        "spans": (200, 100, 1),
        "batches": (200, 100, 3),
        "events": (40, 10, 1),
    },
    slice_rows=64,
)
SUMMED = [name for name in COLUMNS if name not in ("step", "t_start_ns", "t_end_ns", "loader", "flags")]


def record_steps(folder: Path, rows: list[Row], *, limits: Limits = SMALL, at_once: int = 100) -> Recording:
    writer = RunWriter.create(folder, meta={}, limits=limits)
    for first in range(0, len(rows), at_once):
        for rank in (0, 1):
            writer.put_records(KIND_STEP, rank, rows[first : first + at_once])
        writer.commit()
    writer.close()
    return read_recording(folder)


def as_rows(rows: list[Row]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([(*payload, flags, 1) for flags, payload in rows], np.int64)


def test_old_steps_become_windows_of_a_second_and_sums_stay_true(tmp_path: Path) -> None:
    rows = [step_row(step, samples=step % 7, gc_ns=step) for step in range(5000)]  # 50 s
    steps = record_steps(tmp_path / "run", rows).steps[1]
    everything = as_rows(rows)
    for name in SUMMED:
        assert steps[name].sum() == everything[:, COLUMNS.index(name)].sum(), name
    assert steps["step"].tolist() == np.append(0, steps["count"].cumsum()[:-1]).tolist()
    assert np.all(steps["count"][-200:] == 1)
    folded = steps[steps["count"] > 1]
    assert 40 <= len(folded) <= 55
    assert folded["count"].max() == 100
    assert np.array_equal(folded["t_end_ns"] - folded["t_start_ns"], folded["count"] * 10 * MS)
    assert np.all(folded["t_start_ns"] // SECOND_NS == (folded["t_end_ns"] - 1) // SECOND_NS)


def test_what_stands_out_is_kept_as_it_was(tmp_path: Path) -> None:
    rows, start_ns = [], T0_NS
    for step in range(5000):
        took_ns = 90 * MS if step % 500 == 250 else 10 * MS
        rows.append(
            step_row(step, start_ns=start_ns, took_ns=took_ns, flags=FLAG_EPOCH_START if step % 1000 == 0 else 0)
        )
        start_ns += took_ns
    steps = record_steps(tmp_path / "run", rows).steps[0]
    slow = steps[(steps["t_end_ns"] - steps["t_start_ns"] == 90 * MS) & (steps["count"] == 1)]
    assert slow["step"].tolist() == list(range(250, 5000, 500))
    epochs = steps[steps["flags"] & FLAG_EPOCH_START != 0]
    assert epochs["step"].tolist() == [0, 1000, 2000, 3000, 4000]
    assert np.array_equal(
        steps["t_end_ns"] - steps["t_start_ns"],
        sum(steps[f"{p}_ns"] for p in ("input_wait", "forward", "backward", "optimizer")),
    )


def test_a_jittery_job_folds_all_the_same(tmp_path: Path) -> None:
    rows, start_ns = [], T0_NS
    for step in range(5000):
        took_ns = 40 * MS if step % 3 == 0 else 10 * MS
        rows.append(step_row(step, start_ns=start_ns, took_ns=took_ns))
        start_ns += took_ns
    assert len(record_steps(tmp_path / "run", rows).steps[0]) < 200 + SMALL.slice_rows + 300


def test_windows_double_rather_than_grow_in_number(tmp_path: Path) -> None:
    rows = [step_row(step, start_ns=T0_NS + step * SECOND_NS // 2, took_ns=SECOND_NS // 2) for step in range(8000)]
    steps = record_steps(tmp_path / "run", rows).steps[0]
    assert steps["count"].sum() == 8000
    assert len(steps) <= SMALL.raw_steps + SMALL.windows + 2 * SMALL.slice_rows + 100
    assert steps["count"].max() >= 64


def test_the_run_file_grows_by_what_a_window_needs_not_by_what_a_step_needs(tmp_path: Path) -> None:
    def bytes_written(name: str, steps: int, limits: Limits) -> int:
        record_steps(
            tmp_path / name, [step_row(step, gc_ns=step * 977 % 99_991) for step in range(steps)], limits=limits
        )
        return (tmp_path / name / "run.sqlite").stat().st_size

    plenty = Limits()
    raw = (bytes_written("raw-short", 2000, plenty), bytes_written("raw-long", 8000, plenty))
    reduced = (bytes_written("short", 2000, SMALL), bytes_written("long", 8000, SMALL))
    bytes_a_raw_step = (raw[1] - raw[0]) / (2 * 6000)
    bytes_a_reduced_step = (reduced[1] - reduced[0]) / (2 * 6000)
    assert 60 < bytes_a_raw_step < 160
    assert bytes_a_reduced_step < bytes_a_raw_step / 20  # a hundred steps a window, less what is kept besides


def test_thinned_records_are_those_of_the_same_steps_in_all_ranks(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=SMALL)
    for first in range(0, 6000, 100):
        for rank in (0, 1, 2):
            some = range(first, first + 100)
            writer.put_records(KIND_GPU_STEP, rank, [gpu_row(step) for step in some])
            writer.put_records(KIND_COMM, rank, [comm_row(step) for step in some if step % 4 == 0])
        writer.commit()
    writer.close()
    recording = read_recording(tmp_path / "run")
    for tables, every in ((recording.gpu_steps, 1), (recording.comm, 4)):
        kept = [tables[rank]["step"].tolist() for rank in (0, 1, 2)]
        assert kept[0] == kept[1] == kept[2]
        assert kept[0][-200:] == list(range(6000 - 200 * every, 6000, every))
        past = 6000 - (200 + SMALL.slice_rows) * every
        old = np.array([step for step in kept[0] if step < past])
        assert 15 < len(old) <= 100
        assert np.abs(old.mean() / past - 0.5) < 0.1  # from the whole time, not from one end of it


def test_thinned_batches_are_of_all_workers(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=SMALL)
    for number in range(8000):
        writer.put_records(KIND_BATCH, 0, [batch_row(number, worker=number % 8)], pid=100 + number % 8)
        writer.put_records(KIND_SPAN, 0, [span_row("gc", number, number, number + 1)])
        if number % 50 == 0:
            writer.commit()
    writer.close()
    recording = read_recording(tmp_path / "run")
    batches = recording.batches[0]
    assert len(batches) <= 200 + 100 + 2 * SMALL.slice_rows + 50
    old = batches[batches["t_end_ns"] < T0_NS + 7000 * 10 * MS]
    assert set(old["worker"].tolist()) == set(range(8))
    assert len(recording.spans[0]) <= 200 + 100 + 2 * SMALL.slice_rows + 50


def test_old_samples_are_thinned_series_by_series(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=SMALL)
    for second in range(1000):
        samples = [Sample("cpu.busy_s", f"cpu:{cpu}", float(second)) for cpu in range(20)]
        if second % 7 == 3:  # a slower probe is hardly ever there at a kept tick
            samples.append(Sample("net.rx_bytes", "net:eth0", float(second)))
        writer.put_samples(second * SECOND_NS, samples)
        writer.commit()
    writer.close()
    recording = read_recording(tmp_path / "run")
    for cpu in range(20):
        busy = recording.samples["cpu.busy_s", f"cpu:{cpu}"]
        seconds = (busy.t_ns // SECOND_NS).tolist()
        assert seconds[-100:] == list(range(900, 1000))
        assert seconds[:89] == list(range(0, 890, 10))
        assert busy.value.tolist() == seconds
    received = recording.samples["net.rx_bytes", "net:eth0"].t_ns // SECOND_NS
    assert 85 <= np.count_nonzero(received < 900) <= 91


def test_many_series_are_thinned_before_their_time(tmp_path: Path) -> None:
    limits = Limits(raw_samples=2000, thin_samples=1000, slice_rows=64)
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=limits)
    for second in range(2000):
        writer.put_samples(second * SECOND_NS, [Sample("proc.cpu_s", f"pid:{pid}", 0.5) for pid in range(50)])
        writer.commit()
    writer.close()
    series = read_recording(tmp_path / "run").samples
    assert len(series) == 50
    assert sum(len(one.t_ns) for one in series.values()) < 2000 + 1000 + 500
    assert {one.t_ns[0] for one in series.values()} == {0}


def test_a_frequent_kind_of_event_does_not_displace_a_rare_one(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=SMALL)
    writer.put_event(Event(0, "death", 1, 0, {}))
    for number in range(2000):
        writer.put_event(Event(number, "stack", 1, 0, {"frames": []}))
        if number % 50 == 0:
            writer.commit()
    writer.close()
    kinds = [event.kind for event in read_recording(tmp_path / "run").events]
    assert kinds.count("death") == 1
    assert 40 <= kinds.count("stack") < 250


def test_indices_drawn_in_each_step_do_not_displace_the_evaluations(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=SMALL)
    for step in range(8000):
        spans = [span_row("index", step, step, step + 1)]
        spans += [span_row("evaluation", step, step, step + 1)] if step % 100 == 0 else []
        writer.put_records(KIND_SPAN, 0, spans)
        if step % 50 == 0:
            writer.commit()
    writer.close()
    labels = read_recording(tmp_path / "run").spans[0]["label"]
    assert np.count_nonzero(labels == SPAN_CODE["evaluation"]) == 80
    assert len(labels) <= 80 + 200 + 100 + 2 * SMALL.slice_rows + 50


def test_profiles_are_few_for_they_are_large(tmp_path: Path) -> None:
    limits = Limits(large_events={"profile": (40, 20, 1)})
    writer = RunWriter.create(tmp_path / "run", meta={}, limits=limits)
    for number in range(1000):
        writer.put_event(Event(number, "profile", 1, 0, {"looks": 0, "stacks": []}))
        writer.put_event(Event(number, "stack", 1, 0, {"frames": []}))
        writer.commit()
    writer.close()
    events = read_recording(tmp_path / "run").events
    profiles = [event.t_ns for event in events if event.kind == "profile"]
    assert 40 <= len(profiles) < 40 + 20 + 2 * 40
    assert profiles[-40:] == list(range(960, 1000)), "the latest are all there"
    assert len(events) - len(profiles) == 1000


def test_reducing_stops_after_the_slice_in_which_its_time_is_up(tmp_path: Path) -> None:
    db = create_database(tmp_path / "run.sqlite", {})
    retention = Retention(db, SMALL)
    marks = ", ".join("?" * (len(STEP_FIELDS) + 3))
    rows = [(0, 0, 1, *step_row(step)[1]) for step in range(3000)]
    db.executemany(f"INSERT INTO steps VALUES ({marks})", rows)
    retention.inserted("steps", 0, len(rows))
    sizes = [3000]
    for _ in range(3):
        retention.advance(budget_s=0.0)
        sizes += db.execute("SELECT count(*) FROM steps").fetchone()
    db.close()
    assert all(0 < before - after < SMALL.slice_rows for before, after in pairwise(sizes))
