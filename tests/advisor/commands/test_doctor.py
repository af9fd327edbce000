"""The command `doctor`: its table, its JSON, and an exit code that follows from what is missing."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from rn50_advisor.advisor.commands import machine_checks
from rn50_advisor.advisor.commands.doctor import doctor
from rn50_advisor.advisor.commands.machine_checks import DoctorCheck

OK = DoctorCheck("cgroup", "ok", "v2, no CPU quota")
WARN = DoctorCheck("/dev/shm", "warn", "64.0 MiB", "docker run --shm-size=8g")
MISSING = DoctorCheck("injection", "missing", "it does not reach \x1b[31ma child\n of " + "python " * 20, "not with -I")


def invoked(monkeypatch: pytest.MonkeyPatch, checks: list[DoctorCheck], *arguments: str) -> Result:
    monkeypatch.setattr(machine_checks, "run_checks", lambda python: checks)
    return CliRunner().invoke(doctor, list(arguments))


@pytest.mark.parametrize(
    ("checks", "code", "sums"),
    [
        ([OK], 0, "1 ok, 0 with less evidence, 0 missing"),
        ([OK, WARN, WARN], 0, "1 ok, 2 with less evidence, 0 missing"),
        ([OK, MISSING, WARN], 1, "1 ok, 1 with less evidence, 1 missing"),
    ],
)
def test_only_what_is_missing_is_an_exit_code(
    checks: list[DoctorCheck], code: int, sums: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = invoked(monkeypatch, checks)
    assert done.exit_code == code and done.stdout.splitlines()[-1] == sums
    assert invoked(monkeypatch, checks, "--json").exit_code == code


def test_each_check_is_a_mark_with_a_word_and_its_hint_stands_below(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = invoked(monkeypatch, [OK, WARN, MISSING]).stdout.splitlines()
    assert lines[:3] == [
        "✓ ok       cgroup                v2, no CPU quota",
        "! warn     /dev/shm              64.0 MiB",
        " " * 33 + "hint: docker run --shm-size=8g",
    ]
    assert lines[3].startswith("✗ missing  injection             it does not reach a child of python")
    assert max(map(len, lines)) <= 100


def test_programs_get_every_field(monkeypatch: pytest.MonkeyPatch) -> None:
    assert json.loads(invoked(monkeypatch, [OK, WARN], "--json").stdout) == [
        {"name": "cgroup", "state": "ok", "found": "v2, no CPU quota", "hint": ""},
        {"name": "/dev/shm", "state": "warn", "found": "64.0 MiB", "hint": "docker run --shm-size=8g"},
    ]
