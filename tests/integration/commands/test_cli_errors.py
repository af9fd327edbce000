"""Wrong input gets one clear line on stderr, a hint where there is one, nothing on stdout, and an exit code of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from cli_process import advisor
from rn50_advisor.advisor.store.schema import APPLICATION_ID, FILE_NAME, USER_VERSION

CASES = {
    "no command at all": ([], 64, "no command given"),
    "no command to run": (["run"], 64, "no command to run"),
    "only a separator": (["run", "--"], 64, "no command to run"),
    "an unknown command": (["frobnicate"], 64, "No such command 'frobnicate'"),
    "an unknown option": (["run", "--frobnicate", "true"], 64, "--frobnicate"),
    "an option without its value": (["run", "--name"], 64, "--name"),
    "a budget of nothing": (["run", "--overhead-budget", "0", "true"], 64, "--overhead-budget"),
    "a budget that is no number": (["run", "--overhead-budget", "much", "true"], 64, "much"),
    "a report of unknown format": (["run", "--report", "report.pdf", "true"], 64, "report.pdf"),
    "a run that is nowhere": (["report", "nowhere"], 2, "nowhere is not a run"),
    "no run yet": (["report"], 2, "no runs in"),
    "a bundle of nothing": (["bundle", "nowhere"], 2, "nowhere is not a run"),
    "an unknown report format": (["report", "--format", "pdf", "nowhere"], 64, "pdf"),
    "an unknown rule": (["explain", "DAT999"], 64, "no rule 'DAT999'"),
    "watch without a terminal": (["watch", "nowhere"], 64, "watch needs a terminal"),
    "a python that does not exist": (["doctor", "--python", "/nowhere/python"], 64, "/nowhere/python"),
    "a benchmark that is none": (["bench", "--against", "/bin/sh"], 2, "/bin/sh: no benchmark"),
    "a home of nobody": (["report", "~nobody-has-this-name"], 2, "~nobody-has-this-name is not a run"),
    "a name longer than any file's": (["compare", "x" * 5000, "y"], 2, "cannot be read"),
    "a command that does not exist": (["run", "--", "no-such-command-anywhere"], 127, "command not found"),
    "a folder as command": (["run", "--", "/"], 126, "is a directory"),
    "a command longer than any file's name": (["run", "--", "/" + "x" * 300], 126, "File name too long"),
    "a configuration that does not exist": (["run", "--config", "nowhere.toml", "true"], 78, "nowhere.toml"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_wrong_command_line_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    arguments, exit_code, said = CASES[name]
    done = advisor(*arguments, cwd=tmp_path)
    lines = done.stderr.decode().splitlines()
    assert done.returncode == exit_code, lines
    assert lines[0].startswith("rn50-advisor: ") and said in lines[0]
    assert [line for line in lines[1:] if not line.startswith("  hint: ")] == []
    assert done.stdout == b""


def test_a_command_that_cannot_be_started_leaves_nothing_and_the_latest_run_as_it_was(tmp_path: Path) -> None:
    assert advisor("run", "--run-dir", "a/runs", "--", "no-such-command-anywhere", cwd=tmp_path).returncode == 127
    assert list(tmp_path.iterdir()) == []
    earlier = tmp_path / "runs" / "earlier"
    earlier.mkdir(parents=True)
    for command, exit_code in (("no-such-command-anywhere", 127), ("/", 126)):
        assert advisor("run", "--", command, cwd=tmp_path).returncode == exit_code
    assert list((tmp_path / "runs").iterdir()) == [earlier]


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "empty"), (b"hello world\n" * 100, "not an SQLite database"), (None, "of another program")],
)
def test_a_file_that_is_no_run_is_refused(content: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "run.sqlite"
    if content is None:
        _database(file, application_id=1, user_version=1)
    else:
        file.write_bytes(content)
    done = advisor("report", file, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()


def test_a_run_of_a_newer_advisor_is_refused_with_the_way_out(tmp_path: Path) -> None:
    _database(tmp_path / FILE_NAME, application_id=APPLICATION_ID, user_version=USER_VERSION + 1)
    done = advisor("report", tmp_path, cwd=tmp_path)
    assert done.returncode == 2
    first, hint = done.stderr.decode().splitlines()
    assert f"format {USER_VERSION + 1}" in first and "pip install -U" in hint


def test_hostile_arguments_do_not_reach_the_terminal_as_escapes(tmp_path: Path) -> None:
    done = advisor("report", "\x1b[31mred\x1b[0m\nrn50-advisor: all is well", cwd=tmp_path)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert sum(line.startswith(b"rn50-advisor: ") for line in done.stderr.splitlines()) == 1


def test_a_traceback_is_shown_on_demand_only(tmp_path: Path) -> None:
    assert b"Traceback" not in advisor("report", "nowhere", cwd=tmp_path).stderr
    assert b"Traceback" in advisor("report", "nowhere", cwd=tmp_path, env={"RN50_ADVISOR_DEBUG": "1"}).stderr


def _database(file: Path, *, application_id: int, user_version: int) -> None:
    db = sqlite3.connect(file)
    db.execute(f"PRAGMA application_id = {application_id}")
    db.execute(f"PRAGMA user_version = {user_version}")
    db.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)")
    db.commit()
    db.close()
