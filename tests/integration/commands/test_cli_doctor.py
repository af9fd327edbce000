"""`doctor` tries each thing and says what it saw; its exit code follows from what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cli_process import advisor

NAMES = [
    "advisor's python",
    "the job's torch",
    "injection",
    "ring folder",
    "py-spy",
    "NVIDIA driver",
    "cgroup",
    "pressure (PSI)",
    "/dev/shm",
    "terminal",
]


def checks(done_stdout: bytes) -> dict[str, dict[str, str]]:
    return {row["name"]: row for row in json.loads(done_stdout)}


def test_every_check_answers_and_the_exit_code_follows(tmp_path: Path) -> None:
    done = advisor("doctor", "--json", "--python", sys.executable, cwd=tmp_path)
    found = checks(done.stdout)
    assert list(found) == NAMES
    assert {row["state"] for row in found.values()} <= {"ok", "warn", "missing"}
    assert all(row["found"] for row in found.values())
    assert all(row["hint"] for row in found.values() if row["state"] != "ok")
    assert done.returncode == (1 if any(row["state"] == "missing" for row in found.values()) else 0)
    assert found["injection"]["state"] == "ok" and sys.executable in found["injection"]["found"]
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_keeps_the_recorder_out_is_found_out(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    python.chmod(0o755)
    done = advisor("doctor", "--json", "--python", python, cwd=tmp_path)
    found = checks(done.stdout)
    assert done.returncode == 1
    assert found["injection"]["state"] == "missing" and "-I" in found["injection"]["hint"]
    assert found["the job's torch"]["state"] == "missing" and "--python" in found["the job's torch"]["hint"]


def test_people_get_a_table_with_words_beside_the_marks(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    shown = advisor("doctor", "--python", python, cwd=tmp_path).stdout.decode()
    assert "✓ ok       advisor's python" in shown and "✗ missing  the job's torch" in shown
    assert max(map(len, shown.split("\n"))) <= 100
