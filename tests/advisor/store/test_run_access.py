"""Run files are opened for reading only, whatever has become of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from finished_runs import finished_run, on_database
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.run_access import find_database, open_database, table_names
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.schema import USER_VERSION
from rn50_advisor.probes.rank.layout import KIND_STEP
from store_rows import make_read_only, small_disk, step_row


def crashed_run(folder: Path, steps: int = 100) -> Path:
    """A run after SIGKILL: a WAL that holds nearly everything."""
    writer = RunWriter.create(folder.with_name("alive"), meta={"name": "x"})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(steps)])
    writer.commit()
    shutil.copytree(folder.with_name("alive"), folder)
    (folder / "run.sqlite-shm").unlink()
    writer.close()
    return folder


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
        (on_database("INSERT INTO facts VALUES (7, '[1]')"), "damaged.*not a JSON object"),
        (on_database("INSERT INTO events VALUES (7, 'death', 1, 0, 'null')"), "damaged.*not a JSON object"),
        (on_database("INSERT INTO part_names VALUES (7, '\"x\"')"), "damaged.*not a JSON object"),
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


def test_the_run_file_itself_may_be_named(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run with %20 and ?#")
    assert read_recording(run / "run.sqlite").meta.argv == ("t.py",)


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


@pytest.mark.parametrize(
    "change",
    [
        'CREATE TABLE "odd ""name" (a INTEGER, b TEXT GENERATED ALWAYS AS (hex(zeroblob(1 << a))) VIRTUAL)',
        "CREATE TABLE more (a INTEGER, b INTEGER GENERATED ALWAYS AS (a + 1) STORED)",
    ],
)
def test_columns_that_are_computed_are_not_ours(tmp_path: Path, change: str) -> None:
    run = finished_run(tmp_path / "run")
    on_database(change)(run)
    with pytest.raises(NotARun, match="has columns that are computed"), open_database(run):
        pass


def test_whatever_executes_code_is_no_table(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    on_database("CREATE VIEW v AS SELECT 1; CREATE VIRTUAL TABLE f USING fts5(x); CREATE TABLE later (a INTEGER)")(run)
    with open_database(run) as db:
        names = table_names(db)
    assert "later" in names and not {"v", "f"} & names


def test_the_connection_writes_nothing_and_sees_one_moment(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    with open_database(run) as db:
        before = db.execute("SELECT count(*) FROM steps").fetchone()
        with pytest.raises(sqlite3.OperationalError):
            db.execute("DELETE FROM steps")
        assert db.execute("SELECT count(*) FROM steps").fetchone() == before == (100,)


def test_an_error_while_reading_is_named_as_damage(tmp_path: Path) -> None:
    run = finished_run(tmp_path / "run")
    with pytest.raises(NotARun, match=r"run\.sqlite is damaged: no such table: missing"), open_database(run) as db:
        db.execute("SELECT * FROM missing")


def test_a_path_that_may_not_be_asked_about_is_no_run(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 300)
    with pytest.raises(NotARun, match="cannot be read: File name too long"):
        find_database(long)
    assert find_database(finished_run(tmp_path / "run")) == tmp_path / "run" / "run.sqlite"
