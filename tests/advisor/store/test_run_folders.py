"""Runs get folders of their own and are found by what a user types."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

import pytest

from rn50_advisor.advisor.merge.job_reading import resolve_job
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.run_folders import list_runs, new_run_folder, resolve_run
from rn50_advisor.advisor.store.run_writer import RecordingStopped, RunWriter
from store_rows import make_read_only, small_disk

NOON = datetime(2025, 3, 4, 12, 0, 5)


def run_called(base: Path, name: str | None, second: int) -> Path:
    folder = new_run_folder(base, name, NOON.replace(second=second))
    RunWriter.create(folder, meta={}).close()
    return folder


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet", "20250304-120005-resnet"),
        (None, "20250304-120005"),
        ("", "20250304-120005"),
        ("../../etc/x", "20250304-120005-etc-x"),
        ("a b/ü\n", "20250304-120005-a-b-u"),
        ("...", "20250304-120005"),
        ("x" * 300, "20250304-120005-" + "x" * 60),
    ],
)
def test_the_folder_is_called_after_time_and_name(tmp_path: Path, name: str | None, expected: str) -> None:
    folder = new_run_folder(tmp_path / "runs", name, NOON)
    assert folder == tmp_path / "runs" / expected
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_unix_seconds_are_as_good_as_a_time(tmp_path: Path) -> None:
    assert new_run_folder(tmp_path, None, NOON.timestamp()).name == "20250304-120005"


def test_runs_of_one_second_get_numbers(tmp_path: Path) -> None:
    names = [new_run_folder(tmp_path, "x", NOON).name for _ in range(3)]
    assert names == ["20250304-120005-x", "20250304-120005-x-2", "20250304-120005-x-3"]


def test_where_no_folder_can_be_made_there_is_no_recording(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        make_read_only(disk)
        with pytest.raises(RecordingStopped, match="read-only"):
            new_run_folder(disk / "runs", "x", NOON)


def test_runs_are_listed_newest_first_and_other_folders_not_at_all(tmp_path: Path) -> None:
    middle, old, new = run_called(tmp_path, "b", 2), run_called(tmp_path, "c", 1), run_called(tmp_path, "a", 3)
    (tmp_path / "20260101-000000-empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    other = tmp_path / "by-hand"
    RunWriter.create(other, meta={}).close()
    os.utime(other / "run.sqlite", (NOON.timestamp() + 60,) * 2)
    os.utime(old / "run.sqlite", (NOON.timestamp() + 9999,) * 2)  # copied later
    assert list_runs(tmp_path) == [other, new, middle, old]
    assert list_runs(tmp_path / "absent") == []


def test_a_folder_that_is_closed_to_us_hides_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = run_called(tmp_path, "mine", 1), run_called(tmp_path, "theirs", 2)
    is_file = Path.is_file

    def refused(path: Path) -> bool:
        if theirs in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", refused)
    assert list_runs(tmp_path) == [mine]


def test_a_run_is_found_by_path_name_and_unique_beginning(tmp_path: Path) -> None:
    base = tmp_path / "runs"
    alpha, beta, beta2 = run_called(base, "alpha", 1), run_called(base, "beta", 2), run_called(base, "beta-big", 3)
    bundle = tmp_path / "x.tar.gz"
    bundle.write_bytes(b"")
    for argument, expected in {
        str(alpha): alpha,
        str(alpha / "run.sqlite"): alpha / "run.sqlite",
        str(bundle): bundle,
        alpha.name: alpha,
        "alpha": alpha,
        "al": alpha,
        "20250304-120001": alpha,
        "beta": beta,  # in full, although it also begins another
        "beta-": beta2,
        "latest": beta2,
    }.items():
        assert resolve_run(argument, base) == expected, argument


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("bet", "matches 2 runs: .*beta-big, .*beta"),
        ("2025", "matches 3 runs"),
        ("gamma", "gamma is not a run"),
        ("", "not a run"),
    ],
)
def test_a_run_that_is_not_there_or_not_unique_is_named(tmp_path: Path, argument: str, message: str) -> None:
    for second, name in enumerate(("alpha", "beta", "beta-big")):
        run_called(tmp_path, name, second)
    with pytest.raises(NotARun, match=message) as error:
        resolve_run(argument, tmp_path)
    assert error.value.hint


def test_without_runs_the_message_says_so_and_how_to_record_one(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match=f"^no runs in {tmp_path}$") as error:
        resolve_run("latest", tmp_path)
    assert "rn50-advisor run -- COMMAND" in error.value.hint and "--run-dir" in error.value.hint
    with pytest.raises(NotARun, match=r"^gamma is not a run, and .* holds no runs$"):
        resolve_run("gamma", tmp_path)


@pytest.mark.parametrize(
    ("argument", "suggested"),
    [
        ("lastest", "did you mean latest?"),
        ("alhpa", "did you mean alpha?"),
        ("rnus/alhpa", "did you mean alpha?"),
        ("20250304-120009-alpha", "did you mean 20250304-120000-alpha"),
        ("beat", "did you mean beta?"),  # two runs are called so, which the next answer says
        ("xyz", "the newest is 20250304-120002-beta"),
    ],
)
def test_a_misspelt_run_gets_a_suggestion(tmp_path: Path, argument: str, suggested: str) -> None:
    for second, name in enumerate(("alpha", "beta", "beta")):
        run_called(tmp_path, name, second)
    with pytest.raises(NotARun) as error:
        resolve_run(argument, tmp_path)
    assert error.value.hint.startswith(suggested) and "rn50-advisor runs" in error.value.hint


@pytest.mark.parametrize("argument", ["~nobody-has-this-name", "x" * 5000, "a/\0b", "/proc/1/root/../../x"])
def test_what_can_be_no_path_is_no_run_either(tmp_path: Path, argument: str) -> None:
    run_called(tmp_path, "alpha", 1)
    with pytest.raises(NotARun):
        resolve_run(argument, tmp_path)
    with pytest.raises(NotARun):
        resolve_job(argument, tmp_path)


def test_without_any_run_the_hint_says_how_to_record_one(tmp_path: Path) -> None:
    with pytest.raises(NotARun) as error:
        resolve_run("latest", tmp_path / "runs")
    assert "rn50-advisor run" in error.value.hint
