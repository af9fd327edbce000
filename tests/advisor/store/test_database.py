"""A new run's folder is locked for one writer, and its database holds nothing but what was given."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.store.database import (
    LOCK_NAME,
    SPARE_BYTES,
    add_gap,
    close_broken_off,
    create_database,
    give_lock_back,
    meta_rows,
    storable,
    take_lock,
)
from rn50_advisor.advisor.store.run_access import check_identity, table_names
from rn50_advisor.advisor.store.schema import FILE_NAME, INDEXES, TABLES


def test_the_lock_is_the_users_alone_and_holds_room_for_the_last_note(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    about = (tmp_path / LOCK_NAME).stat()
    assert (about.st_size, about.st_mode & 0o777) == (SPARE_BYTES, 0o600)
    assert not os.get_inheritable(lock)
    give_lock_back(tmp_path, lock)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError):
        os.fstat(lock)


def test_a_second_writer_is_refused_and_takes_nothing_away(tmp_path: Path) -> None:
    lock = take_lock(tmp_path)
    with pytest.raises(UsageError, match="another advisor is recording into"):
        take_lock(tmp_path)
    assert (tmp_path / LOCK_NAME).exists()
    give_lock_back(tmp_path, lock)
    give_lock_back(tmp_path, take_lock(tmp_path))


def test_a_lock_that_a_killed_writer_left_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / LOCK_NAME).write_bytes(b"spare")
    give_lock_back(tmp_path, take_lock(tmp_path))


def test_a_folder_that_holds_a_run_is_refused_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"")
    with pytest.raises(UsageError, match="already holds a run"):
        take_lock(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [FILE_NAME]


def test_a_new_database_has_all_tables_and_indexes_and_its_meta(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    db = create_database(file, {"name": "first", "argv": ["train.py"]})
    check_identity(file)
    assert table_names(db) == set(TABLES)
    indexes = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql != ''")}
    assert indexes == {f"{table}_by_{column}" for table, column in INDEXES.items()}
    assert dict(db.execute("SELECT key, value FROM meta")) == {"name": '"first"', "argv": '["train.py"]'}
    assert file.stat().st_mode & 0o777 == 0o600
    db.close()


def test_an_existing_file_is_never_written_to(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text("mine")
    with pytest.raises(FileExistsError):
        create_database(tmp_path / FILE_NAME, {})
    assert (tmp_path / FILE_NAME).read_text() == "mine"


def test_meta_that_cannot_be_stored_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error):
        create_database(tmp_path / FILE_NAME, {"name": "x", ("no", "text"): 1})  # type: ignore[dict-item]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("", ""),
        ("train.py", "train.py"),
        ("Größe 模型", "Größe 模型"),
        ("name\udcff", "name?"),
        ("--password=hunter2hunter2", "--password=***"),
    ],
)
def test_text_is_stored_without_secrets_and_as_text(text: str, stored: str) -> None:
    assert storable(text) == stored


def test_names_of_secrets_are_no_meta() -> None:
    ((key, value),) = meta_rows({"environment": {"variables": {"HOME": "/root", "WANDB_API_KEY": "0123456789abcdef"}}})
    assert key == "environment"
    assert "0123456789abcdef" not in value
    assert json.loads(value)["variables"]["HOME"] == "/root"


def test_a_run_whose_writer_was_killed_is_closed(tmp_path: Path) -> None:
    db = create_database(tmp_path / FILE_NAME, {"last_ns": 700})
    process = "INSERT INTO processes (pid, first_seen_ns, role, parent_pid, command, ended_ns) VALUES (?, 1, 'other', 1, '', ?)"
    db.executemany(process, [(50, None), (51, None), (52, 600)])
    db.close()
    (tmp_path / LOCK_NAME).write_bytes(b"")
    close_broken_off(tmp_path, reason="killed", root_pid=50, ended_ns=900, exit_code=3, exit_signal=None)
    db = sqlite3.connect(tmp_path / FILE_NAME)
    meta = {key: json.loads(value) for key, value in db.execute("SELECT key, value FROM meta")}
    ended = dict(db.execute("SELECT pid, ended_ns FROM processes"))
    ((mode,),) = db.execute("PRAGMA journal_mode").fetchall()
    db.close()
    assert meta == {
        "last_ns": 700,
        "ended_ns": 900,
        "exit_code": 3,
        "exit_signal": None,
        "recording_stopped_ns": 700,
        "recording_stopped_reason": "killed",
    }
    assert ended == {50: 900, 51: None, 52: 600}
    assert (mode, (tmp_path / LOCK_NAME).exists()) == ("delete", False)


def test_a_gap_is_added_to_a_run_that_has_ended(tmp_path: Path) -> None:
    create_database(tmp_path / FILE_NAME, {"name": "x"}).close()
    for reason in ("first", "token=hf_abcdefghijklmnopqrstuvwxyz0123456789"):
        add_gap(tmp_path, ProbeGap("output", "job", reason, "hint"))
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as db:
        ((metric, scope, reason, hint),) = db.execute("SELECT * FROM gaps").fetchall()
    assert (metric, scope, hint) == ("output", "job", "hint") and "hf_" not in reason
