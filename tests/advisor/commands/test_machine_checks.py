"""Each check of `doctor` says what it saw; one that fails itself ends none of the others."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from rn50_advisor.advisor.commands import machine_checks
from rn50_advisor.advisor.commands.machine_checks import DoctorCheck
from rn50_advisor.advisor.model.errors import UsageError


def script(folder: Path, text: str) -> str:
    """An interpreter that does this."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def test_the_interpreter_is_the_one_named_else_that_of_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = script(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine_checks.job_python(None) == mine
    assert machine_checks.job_python(sys.executable) == sys.executable
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    assert machine_checks.job_python(None) == sys.executable
    with pytest.raises(UsageError, match="no such program"):
        machine_checks.job_python("python-of-nobody")


@pytest.mark.parametrize(
    ("answer", "state", "found"),
    [
        ('["3.11.4", "2.5.1", "12.4", 2, ["nccl", "gloo"]]', "ok", "2.5.1 (CUDA 12.4, 2 GPUs; nccl, gloo) in Python 3.11.4"),
        ('["3.9.1", "2.1", "12.1", 1, ["gloo"]]', "ok", "2.1 (CUDA 12.1, 1 GPU; gloo) in Python 3.9.1"),
        ('["3.12.0", "2.6", null, 0, false]', "ok", "2.6 (CPU only; no distributed backend) in Python 3.12.0"),
        ('["3.8.18", "2.4", null, 0, ["gloo"]]', "missing", "2.4 (CPU only; gloo) in Python 3.8.18"),
    ],
)  # fmt: skip
def test_torch_is_reported_with_its_build_and_an_old_python_is_none(
    answer: str, state: str, found: str, tmp_path: Path
) -> None:
    python = script(tmp_path, f"echo 'a line of a sitecustomize'; echo '{answer}'")
    check = machine_checks.torch_of(python)
    assert check.state == state and check.found == f"{found} at {python}"
    assert ("3.9 or newer" in check.hint) == (state == "missing")


def test_a_torch_that_cannot_be_imported_is_missing_with_its_reason(tmp_path: Path) -> None:
    check = machine_checks.torch_of(script(tmp_path, "echo 'ImportError: libcudart.so' >&2; exit 1"))
    assert check.state == "missing" and check.found.endswith("ImportError: libcudart.so") and "--python" in check.hint
    assert machine_checks.torch_of(script(tmp_path, "exit 1")).found.endswith("no message")


def test_the_recorder_reaches_a_child_of_this_interpreter() -> None:
    check = machine_checks.injection(sys.executable)
    assert check.state == "ok" and check.found.startswith(f"reached a child of {sys.executable}")


def test_an_interpreter_that_ignores_the_environment_keeps_the_recorder_out(tmp_path: Path) -> None:
    check = machine_checks.injection(script(tmp_path, f'exec "{sys.executable}" -E "$@"'))
    assert check.state == "missing" and "sitecustomize was not run" not in check.hint and "-E" in check.hint


@pytest.mark.parametrize(("gib", "state"), [(0.0625, "warn"), (0.99, "warn"), (1.0, "ok"), (16.0, "ok")])
def test_less_than_a_gibibyte_of_shared_memory_is_little(
    gib: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SimpleNamespace(f_frsize=4096, f_blocks=round(gib * (1 << 18)), f_bavail=10)
    monkeypatch.setattr(os, "statvfs", lambda path: space)
    check = machine_checks.shared_memory()
    assert check.state == state and "40.0 KiB free" in check.found and ("--shm-size" in check.hint) == (state == "warn")


@pytest.mark.parametrize(
    ("term", "size", "encoding", "advice"),
    [
        ("xterm-256color", (120, 40), "utf-8", ""),
        ("xterm", (80, 24), "UTF8", ""),
        ("xterm", (79, 24), "utf-8", ""),
        ("xterm", (120, 40), "ascii", "set LANG"),
        ("dumb", (120, 40), "utf-8", "set TERM"),
        ("", (120, 40), "utf-8", "set TERM"),
    ],
)
def test_a_terminal_is_judged_by_kind_encoding_and_size(
    term: str, size: tuple[int, int], encoding: str, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(machine_checks, "has_terminal", lambda: term != "dumb")
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: size)
    monkeypatch.setattr("sys.stdout", SimpleNamespace(encoding=encoding))
    check = machine_checks.terminal()
    monkeypatch.undo()
    small = size[0] < 80
    assert check.state == ("warn" if advice or small else "ok") and check.hint.startswith(advice)
    assert (f"{size[0]}×{size[1]}" in check.found) and ("80×24 and more" in check.hint) == small


def test_without_a_terminal_nothing_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(machine_checks, "has_terminal", lambda: False)
    assert machine_checks.terminal().state == "ok"


def test_a_check_that_fails_is_a_warning_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> DoctorCheck:
        raise PermissionError("not for you")

    monkeypatch.setattr(machine_checks, "ring_folder", broken)
    monkeypatch.setattr(machine_checks, "py_spy", lambda python: DoctorCheck("py-spy", "ok", python))
    checks = machine_checks.run_checks(script(tmp_path, "exit 1"))
    by_name = {check.name: check for check in checks}
    assert len(checks) == len(by_name) == 10 and checks[0].name == "advisor's python"
    assert by_name["ring folder"] == DoctorCheck(
        "ring folder", "warn", "could not be checked: PermissionError: not for you"
    )
    assert by_name["injection"].state == by_name["the job's torch"].state == "missing"
