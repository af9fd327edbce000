"""A run is readable while it is written, after a crash, on read-only media; anything else is one clear line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import trial_samples as samples
from finished_runs import finished_run, on_database
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, keep_tried
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_BATCH, KIND_PART, KIND_PROFILED, KIND_STEP
from store_rows import MS, T0_NS, batch_row, look_row, part_row, step_row
from written_runs import written_run


def test_trials_beside_the_run_are_read_with_it_and_those_of_no_advisor_are_named(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run")
    assert read_recording(run).tried is None and read_recording(run).gaps == ()
    keep_tried(run, samples.several())
    for path in (run, run / "run.sqlite"):
        tried = read_recording(path).tried
        assert tried is not None and tried.best == samples.WORKERS
    (run / TRIED_NAME).write_text("{}")
    recording = read_recording(run)
    (gap,) = recording.gaps
    assert recording.tried is None and TRIED_NAME in gap.reason and "try RUN" in gap.hint


def test_tables_and_meta_of_a_newer_minor_version_are_passed_over(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    on_database(
        "CREATE TABLE kernels (name TEXT); INSERT INTO kernels VALUES ('gemm'); "
        "ALTER TABLE steps ADD COLUMN tokens INTEGER DEFAULT 5; INSERT INTO meta VALUES ('colour', '\"red\"')"
    )(run)
    recording = read_recording(run)
    assert len(recording.steps[0]) == 100
    assert "tokens" not in (recording.steps[0].dtype.names or ())


def test_of_a_run_from_before_it_was_recorded_a_column_is_unknown(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_BATCH, 1, [batch_row(0), batch_row(1)], pid=7)
    writer.close()
    assert read_recording(tmp_path / "run").batches[1]["sending_ns"].tolist() == [0, 0]
    on_database("ALTER TABLE batches DROP COLUMN sending_ns; ALTER TABLE batches DROP COLUMN gc_ns")(tmp_path / "run")
    made = read_recording(tmp_path / "run").batches[1]
    assert made["sending_ns"].tolist() == made["gc_ns"].tolist() == [-1, -1] and made["samples"].tolist() == [32, 32]
    on_database("ALTER TABLE batches DROP COLUMN system_ns")(tmp_path / "run")
    with pytest.raises(NotARun, match=r"damaged.*system_ns"):
        read_recording(tmp_path / "run")


def test_looks_into_samples_come_back_with_the_names_of_their_parts(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_PROFILED, 1, [look_row(0), look_row(1)])
    writer.put_records(KIND_PART, 1, [part_row(0, 77), part_row(1, 77)])
    writer.put_part_name(77, {"kind": "transform", "name": "Blur", "file": "/job/data.py", "line": 7})
    writer.close()
    made = read_recording(tmp_path / "run")
    assert made.looks[1]["cpu_ns"].tolist() == [MS, MS]
    assert made.part_names[int(made.parts[1]["part"][0])]["name"] == "Blur"
    on_database("ALTER TABLE looks DROP COLUMN cpu_ns")(tmp_path / "run")
    with pytest.raises(NotARun, match=r"damaged.*cpu_ns"):
        read_recording(tmp_path / "run")


def test_a_run_from_before_samples_were_looked_into_is_whole_without(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    on_database("DROP TABLE looks; DROP TABLE parts; DROP TABLE part_names")(run)
    made = read_recording(run)
    assert (made.looks, made.parts, made.part_names) == ({}, {}, {}) and made.steps[0].size == 100


def test_an_empty_recording_is_read_as_one(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", meta={"name": "x", "started_ns": 5, "last_ns": 5}).close()
    recording = read_recording(tmp_path / "run")
    assert (recording.steps, recording.samples, recording.events, recording.processes) == ({}, {}, (), ())
    assert (recording.meta.last_ns, recording.meta.exit_code) == (5, None)


def test_the_last_moment_is_the_latest_of_everything(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={"started_ns": 5}, clock=lambda: 5)
    writer.put_records(KIND_STEP, 0, [step_row(0)])
    writer.commit()
    assert read_recording(tmp_path / "run").meta.last_ns == T0_NS + 10 * MS
    writer.put_samples(T0_NS + 70 * MS, [Sample("cpu.busy_s", "host", 1.0)])
    writer.close()
    assert read_recording(tmp_path / "run").meta.last_ns == T0_NS + 70 * MS


READER = """
import sys
from pathlib import Path
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, keep_tried
from rn50_advisor.advisor.store.run_reader import read_recording

seen = 0
while seen < 2000:
    recording = read_recording(Path(sys.argv[1]))
    steps = recording.steps[0]["step"].tolist() if recording.steps else []
    assert steps == list(range(len(steps))), steps
    assert len(steps) >= seen and len(steps) % 10 == 0, len(steps)
    assert len(recording.steps.get(1, ())) == len(steps)
    seen = len(steps)
    print(seen, flush=True)
"""


def test_two_readers_see_whole_commits_while_the_run_is_written(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={"name": "x"})
    command = [sys.executable, "-c", READER, str(tmp_path / "run")]
    readers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"PYTHONPATH": ":".join(sys.path)})
        for _ in range(2)
    ]
    try:
        for reader in readers:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "0\n"
        for number in range(200):
            for rank in (0, 1):
                writer.put_records(KIND_STEP, rank, [step_row(number * 10 + step) for step in range(10)])
            writer.commit()
        for reader in readers:
            reader.communicate(timeout=60)
        assert [reader.returncode for reader in readers] == [0, 0]
    finally:
        for reader in readers:
            reader.kill()
            reader.wait()
            assert reader.stdout is not None
            reader.stdout.close()
        writer.close()


def test_recent_steps_are_the_latest_of_each_rank_with_the_samples_of_their_time(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(50)])  # rank 0 died at step 50
    for step in range(50):
        writer.put_samples(T0_NS + step * 10 * MS, [Sample("cpu.busy_s", "host", float(step))])
    writer.put_records(KIND_STEP, 1, [step_row(step) for step in range(300)])
    writer.put_records(KIND_BATCH, 1, [batch_row(number) for number in range(300)], pid=7)
    writer.close()
    recording = read_recording(tmp_path / "run", recent_steps=20)
    assert recording.steps[0]["step"].tolist() == list(range(30, 50))
    assert recording.steps[1]["step"].tolist() == list(range(280, 300))
    assert len(recording.batches[1]) == 20
    assert np.all(np.diff(recording.batches[1]["t_end_ns"]) > 0)
    assert recording.samples["cpu.busy_s", "host"].value.tolist() == [float(step) for step in range(30, 50)]
