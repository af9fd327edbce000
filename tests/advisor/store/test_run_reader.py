"""A run is readable while it is written, after a crash, on read-only media; anything else is one clear line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.schema import USER_VERSION
from rn50_advisor.probes.rank.layout import KIND_BATCH, KIND_LOOK, KIND_PART, KIND_STEP
from store_rows import MS, T0_NS, batch_row, look_row, make_read_only, part_row, small_disk, step_row


def finished_run(folder: Path, steps: int = 100) -> Path:
    writer = RunWriter.create(folder, meta={"name": "x", "argv": ["t.py"]})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(steps)])
    writer.close()
    return folder


def crashed_run(folder: Path, steps: int = 100) -> Path:
    """What SIGKILL leaves: a WAL that holds nearly everything."""
    writer = RunWriter.create(folder.with_name("alive"), meta={"name": "x"})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(steps)])
    writer.commit()
    shutil.copytree(folder.with_name("alive"), folder)
    (folder / "run.sqlite-shm").unlink()
    writer.close()
    return folder


def on_database(change: str) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        db = sqlite3.connect(run / "run.sqlite")
        with db:
            db.executescript(change)
        db.close()

    return apply


def overwrite(start: int, data: bytes) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        with (run / "run.sqlite").open("r+b") as file:
            file.seek(start)
            file.write(data)

    return apply


def truncate(size: int) -> Callable[[Path], None]:
    return lambda run: os.truncate(run / "run.sqlite", size)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (shutil.rmtree, "does not exist"),
        (lambda run: (run / "run.sqlite").unlink(), "holds no run"),
        (truncate(0), "empty"),
        (lambda run: (run / "run.sqlite").write_text("hello " * 100), "not an SQLite database"),
        (on_database("PRAGMA application_id = 7"), "another program"),
        (
            on_database(f"PRAGMA user_version = {USER_VERSION + 1}"),
            f"has format {USER_VERSION + 1}.*up to format {USER_VERSION}",
        ),
        (on_database("DROP TABLE steps"), "damaged.*steps"),
        (on_database("DROP TABLE steps; CREATE VIEW steps AS SELECT 1"), "damaged.*steps"),
        (on_database("ALTER TABLE steps DROP COLUMN samples"), "damaged.*samples"),
        (on_database("UPDATE meta SET value = '{' WHERE key = 'argv'"), "damaged"),
        (on_database("UPDATE meta SET value = '7' WHERE key = 'argv'"), "damaged"),
        (on_database("UPDATE meta SET value = '[]' WHERE key = 'started_unix_s'"), "damaged.*started_unix_s"),
        (on_database("UPDATE meta SET value = 'null' WHERE key = 'host' OR key = 'last_ns'"), "damaged.*last_ns"),
        (on_database("INSERT INTO meta VALUES ('environment', '7')"), "damaged.*environment"),
        (on_database("INSERT INTO facts VALUES (7, '[1]')"), "damaged.*no JSON object"),
        (on_database("INSERT INTO events VALUES (7, 'death', 1, 0, 'null')"), "damaged.*no JSON object"),
        (on_database("INSERT INTO part_names VALUES (7, '\"x\"')"), "damaged.*no JSON object"),
        (on_database(f"INSERT INTO facts VALUES (7, '{'[' * 100_000}')"), "damaged"),
        (on_database("UPDATE steps SET step = 'x' WHERE step = 5"), "damaged"),
        (truncate(3 * 4096), "damaged"),
        (overwrite(100, b"\xa5" * 8000), "damaged"),
        (overwrite(4096, os.urandom(150_000)), "damaged"),
    ],
)
def test_what_is_no_readable_run_is_named_in_one_line(
    tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    run = finished_run(tmp_path / "run", steps=2000)
    spoil(run)
    with pytest.raises(NotARun, match=message) as error:
        read_recording(run)
    assert "\n" not in error.value.message
    assert str(run) in error.value.message


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
    on_database("ALTER TABLE batches DROP COLUMN sending_ns")(tmp_path / "run")
    made = read_recording(tmp_path / "run").batches[1]
    assert made["sending_ns"].tolist() == [-1, -1] and made["samples"].tolist() == [32, 32]
    on_database("ALTER TABLE batches DROP COLUMN system_ns")(tmp_path / "run")
    with pytest.raises(NotARun, match=r"damaged.*system_ns"):
        read_recording(tmp_path / "run")


def test_looks_into_samples_come_back_with_the_names_of_their_parts(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_records(KIND_LOOK, 1, [look_row(0), look_row(1)])
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


def test_the_run_file_itself_may_be_named(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run with %20 and ?#")
    assert read_recording(run / "run.sqlite").meta.argv == ("t.py",)


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


def test_a_crashed_run_is_read_with_its_wal(tmp_path: Path) -> None:
    assert len(read_recording(crashed_run(tmp_path / "run")).steps[0]) == 100


@pytest.mark.parametrize("make", [finished_run, crashed_run])
def test_a_run_on_read_only_media_is_read(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    run = make(tmp_path / "run")
    with small_disk(tmp_path / "disk", "4m") as disk:
        shutil.copytree(run, disk / "run")
        before = sorted(file.name for file in (disk / "run").iterdir())
        make_read_only(disk)
        assert len(read_recording(disk / "run").steps[0]) == 100
        assert sorted(file.name for file in (disk / "run").iterdir()) == before


def test_a_run_in_wal_mode_without_wal_is_read_from_read_only_media(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    on_database("PRAGMA journal_mode = WAL")(run)
    with small_disk(tmp_path / "disk", "4m") as disk:
        shutil.copytree(run, disk / "run")
        make_read_only(disk)
        assert len(read_recording(disk / "run").steps[0]) == 100


def test_reading_changes_nothing(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    read_recording(run)
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before


READER = """
import sys
from pathlib import Path
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
