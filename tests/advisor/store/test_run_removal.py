"""Runs are removed with what the advisor made for them, and with nothing else."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import report_samples as samples
import trial_samples
from finished_runs import on_database
from rn50_advisor.advisor.merge.inbox import Inbox
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from rn50_advisor.advisor.model.recording import happened
from rn50_advisor.advisor.store.kept_trials import keep_tried
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_removal import is_recorded, removable, remove_run
from rn50_advisor.advisor.store.run_summary import summary_of, write_summary
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.event_documents import TracedWindow
from store_rows import T0_NS

STARTED_S = 1.7e9


def full_run(folder: Path, **meta: Any) -> Path:
    """A run with everything that the advisor may have made in its folder."""
    given = {"started_unix_s": STARTED_S, "started_ns": T0_NS, "output_kept": True}
    writer = RunWriter.create(folder, meta={**given, **meta})
    writer.put_meta(ended_ns=T0_NS + 10 * 10**9)
    writer.put_facts(77, {})
    writer.put_event(happened(TracedWindow, {"trace": "deep-rank0.json.gz"}, t_ns=T0_NS))
    writer.close()
    inbox = Inbox(folder)
    inbox.put("node1", "state", b"")
    inbox.close()
    for name in ("deep-rank0.json.gz", "deep-77.json", "run.lock"):
        (folder / name).write_text("")
    output_at(folder, STARTED_S + 9)
    write_summary(folder, summary_of(samples.healthy(), read_recording(folder)))
    keep_tried(folder, trial_samples.several())
    age(folder)
    return folder


def output_at(folder: Path, written_unix_s: float) -> None:
    (folder / "output.log").write_text("epoch 1\n")
    os.utime(folder / "output.log", (written_unix_s, written_unix_s))


def age(folder: Path) -> None:
    """As if the run had ended long ago."""
    os.utime(folder / "run.sqlite", (STARTED_S, STARTED_S))


def test_a_run_goes_with_all_that_was_made_for_it(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    found = removable(run)
    assert found.kept == () and found.size_bytes == sum(path.stat().st_size for path in run.iterdir())
    assert remove_run(found) == ()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_users_stays_and_so_does_the_folder(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    (run / "checkpoints").mkdir()
    mine = {
        "checkpoints",
        "deep-78.json",
        "deep-rank1.json.gz",
        "notes.txt",
        "report.html",
        "report.json",
        "run.sqlite.bak",
    }
    for name in mine - {"checkpoints"}:
        (run / name).write_text("mine")
    (run / "checkpoints" / "run.sqlite").write_text("mine")
    assert set(removable(run).kept) == mine
    assert set(remove_run(removable(run))) == mine
    assert {path.name for path in run.iterdir()} == mine
    assert (run / "checkpoints" / "run.sqlite").read_text() == "mine"


@pytest.mark.parametrize(
    "name", ["nodes.sqlite", "summary.json", "tried.json", "output.log", "deep-rank0.json.gz", "run.lock"]
)
def test_a_name_of_ours_proves_nothing(tmp_path: Path, name: str) -> None:
    """A link in the place of our file leads to somebody's; it stays, and so does what it leads to."""
    run = full_run(tmp_path / "run")
    (tmp_path / "precious").write_text("mine")
    (run / name).unlink()
    (run / name).symlink_to(tmp_path / "precious")
    if name == "run.lock":
        with pytest.raises(OSError):
            removable(run)
    else:
        assert remove_run(removable(run)) == (name,)
    assert (tmp_path / "precious").read_text() == "mine" and (run / name).is_symlink()


@pytest.mark.parametrize("name", ["nodes.sqlite", "summary.json", "tried.json"])
def test_a_file_with_other_contents_is_the_users(tmp_path: Path, name: str) -> None:
    run = full_run(tmp_path / "run")
    (run / name).write_text('{"accuracy": 0.76}')
    assert remove_run(removable(run)) == (name,)
    run = full_run(tmp_path / "another")
    (run / "nodes.sqlite").unlink()
    with sqlite3.connect(run / "nodes.sqlite") as db:
        db.execute("CREATE TABLE nodes (mine)")
    assert remove_run(removable(run)) == ("nodes.sqlite",)


@pytest.mark.parametrize(
    ("meta", "written_unix_s"),
    [
        ({"output_kept": False}, STARTED_S + 9),  # no screen kept it
        ({}, STARTED_S - 60),  # it is older than the run
        ({}, STARTED_S + 3600),  # it was written long after
    ],
)
def test_output_that_a_screen_did_not_keep_is_the_users(
    tmp_path: Path, meta: dict[str, Any], written_unix_s: float
) -> None:
    run = full_run(tmp_path / "run", **meta)
    output_at(run, written_unix_s)
    assert remove_run(removable(run)) == ("output.log",)


def test_a_run_of_an_older_version_keeps_output_that_nothing_is_known_of(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    on_database("DELETE FROM meta WHERE key = 'output_kept'")(run)
    age(run)
    assert remove_run(removable(run)) == ("output.log",)


def test_a_run_that_is_being_recorded_is_refused(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    age(tmp_path / "run")
    assert is_recorded(tmp_path / "run")
    with pytest.raises(AdvisorError, match="is being recorded"):
        removable(tmp_path / "run")
    writer.close()
    assert not is_recorded(tmp_path / "run")
    found = removable(tmp_path / "run")
    (tmp_path / "run" / "run.lock").write_text("")  # on a disk whose locks do not reach here; it was written just now
    os.utime(tmp_path / "run" / "run.sqlite")
    with pytest.raises(AdvisorError, match="is being recorded"):
        remove_run(found)
    assert (tmp_path / "run" / "run.sqlite").exists()


def test_a_run_whose_recording_was_killed_can_be_removed(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_facts(1, {})
    writer.commit()
    os.close(writer._lock)  # as at its death
    for path in (tmp_path / "run").iterdir():
        os.utime(path, (STARTED_S, STARTED_S))
    assert remove_run(removable(tmp_path / "run")) == ()
    assert not (tmp_path / "run").exists()


def test_what_is_not_certainly_a_run_is_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(NotARun, match="holds no run"):
        removable(empty)
    for content in (b"", b"notes\n" * 100):
        (empty / "run.sqlite").write_bytes(content)
        with pytest.raises(NotARun, match="is not certainly a run"):
            removable(empty)
    (empty / "run.sqlite").unlink()
    with sqlite3.connect(empty / "run.sqlite") as db:
        db.execute("CREATE TABLE meta (key, value)")
    with pytest.raises(NotARun, match="of another program"):
        removable(empty)
    with pytest.raises(NotARun, match="is no folder"):
        removable(empty / "run.sqlite")
    with pytest.raises(NotARun):
        removable(tmp_path / "nowhere")
    run = full_run(tmp_path / "run")
    (tmp_path / "link").symlink_to(run)
    with pytest.raises(NotARun, match="is a link"):
        removable(tmp_path / "link")
    (empty / "run.sqlite").unlink()
    (empty / "run.sqlite").symlink_to(run / "run.sqlite")
    with pytest.raises(NotARun, match="no plain file"):
        removable(empty)
    assert len(list(run.iterdir())) == 8


def test_a_run_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = full_run(tmp_path / "run")
    monkeypatch.setattr(os, "geteuid", lambda: run.stat().st_uid + 1)
    with pytest.raises(NotARun, match="another user"):
        removable(run)


def test_a_damaged_run_is_one_all_the_same_but_vouches_for_nothing(tmp_path: Path) -> None:
    run = full_run(tmp_path / "run")
    on_database("DROP TABLE steps")(run)
    age(run)
    left = {"deep-77.json", "deep-rank0.json.gz", "output.log", "tried.json"}
    assert set(remove_run(removable(run))) == left


@pytest.mark.parametrize("value", ["'soon'", "'null'", f"'1{'0' * 400}'"])
def test_damaged_times_vouch_for_no_output(tmp_path: Path, value: str) -> None:
    run = full_run(tmp_path / "run")
    on_database(f"UPDATE meta SET value = {value} WHERE key = 'started_ns'")(run)
    age(run)
    assert "output.log" in removable(run).kept


def test_another_folder_in_its_place_is_left_alone(tmp_path: Path) -> None:
    found = removable(full_run(tmp_path / "run"))
    (tmp_path / "run").rename(tmp_path / "moved")
    full_run(tmp_path / "run")
    with pytest.raises(NotARun, match="another folder"):
        remove_run(found)
    assert (tmp_path / "run" / "run.sqlite").exists()
