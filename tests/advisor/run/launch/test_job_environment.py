"""The job's environment is ours as inherited, with the recorder in front of its path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.launch import job_environment
from rn50_advisor.advisor.run.launch.job_environment import CannotInject, inject_folder, with_recorder

RINGS = Path("/dev/shm/rn50-1")
FRONT = os.fsencode(inject_folder())
UNSET = os.fsencode(inject_folder().with_name("inject_unset"))


@pytest.mark.parametrize(
    ("variables", "path"),
    [
        ({}, UNSET),
        ({b"PYTHONPATH": b""}, UNSET),
        ({b"PYTHONPATH": b"/src:/lib"}, FRONT + b":/src:/lib"),
        ({b"PYTHONPATH": b":/src"}, FRONT + b"::/src"),
        ({b"PYTHONPATH": b"\xff"}, FRONT + b":\xff"),
        ({b"PYTHONPATH": FRONT + b":/src"}, FRONT + b":/src"),  # a run inside a run
        ({b"PYTHONPATH": UNSET}, UNSET),
        ({b"PYTHONPATH": b"/src:" + FRONT}, FRONT + b":/src:" + FRONT),
    ],
)
def test_the_recorder_stands_in_front_of_the_path(variables: dict[bytes, bytes], path: bytes) -> None:
    given = {b"HOME": b"/root", **variables}
    expected = {b"HOME": b"/root", b"RN50_ADVISOR_DIR": b"/dev/shm/rn50-1", b"PYTHONPATH": path}
    assert with_recorder(given, RINGS) == expected
    assert given == {b"HOME": b"/root", **variables}


def test_both_folders_are_there_with_what_loads_the_recorder() -> None:
    for folder in (FRONT, UNSET):
        assert (Path(os.fsdecode(folder)) / "sitecustomize.py").is_file()


def test_a_path_with_a_colon_cannot_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_environment, "inject_folder", lambda: Path("/opt/a:b/inject"))
    with pytest.raises(CannotInject, match="colon"):
        with_recorder({}, RINGS)


def inherited(**variables: str) -> dict[str, str]:
    code = (
        "import os\n"
        "from rn50_advisor.advisor.run.launch.job_environment import inherited_environment\n"
        "for name, value in inherited_environment().items(): os.write(1, name + b'=' + value + b'\\n')\n"
    )
    given = {"PATH": os.environ["PATH"], "RN50_TEST_SESSION": os.environ["RN50_TEST_SESSION"], **variables}
    found = subprocess.run([sys.executable, "-c", code], env=given, stdout=subprocess.PIPE, timeout=60, check=True)
    return dict(line.split("=", 1) for line in found.stdout.decode().splitlines())


def test_what_our_own_interpreter_put_there_is_taken_out() -> None:
    assert "LC_CTYPE" not in inherited(LC_ALL="", LANG="C")  # coerced (PEP 538)
    assert inherited(LC_CTYPE="C.UTF-8")["LC_CTYPE"] == "C.UTF-8"
    assert inherited(LC_CTYPE="de_DE.UTF-8")["LC_CTYPE"] == "de_DE.UTF-8"
    assert inherited(KEY="a=b")["KEY"] == "a=b"
