"""Processes of ours load our modules, whatever lies in the folder where the user starts us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.launch.own_processes import module_command, start_file, start_module

PROGRAM = """
import os, queue, sys

def main():
    stdio = {os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)}
    leads = os.getsid(0) == os.getpid()
    facts = sys.argv[1:], os.getcwd(), queue.__file__, leads, sorted(stdio)
    import json
    with os.fdopen(int(sys.argv[-1]), "w") as file:
        json.dump(facts, file)

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with files that are named like modules of the standard library, and of ours."""
    folder = tmp_path / "work"
    folder.mkdir()
    for name in ("json.py", "queue.py", "importlib.py", "rn50_advisor.py", "sitecustomize.py"):
        (folder / name).write_text("raise SystemExit(99)\n")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "reports_its_start.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(modules)
    return modules / "reports_its_start.py"


@pytest.mark.parametrize("how", ["module", "file"])
def test_it_runs_in_its_own_session_without_stdio_and_with_the_given_descriptor(
    how: str, hostile: Path, program: Path
) -> None:
    read, write = os.pipe()
    arguments = ["a b", "--flag", str(write)]
    if how == "module":
        process = start_module("reports_its_start", arguments, descriptors=[write])
    else:
        process = start_file(program, arguments, descriptors=[write])
    os.close(write)
    with os.fdopen(read) as lines:
        argv, folder, queue, leads, stdio = json.load(lines)
    assert process.wait(30) == 0
    assert argv == arguments
    assert Path(folder) == hostile
    assert hostile not in Path(queue).parents
    assert leads
    assert stdio == ["/dev/null"]


def test_a_descriptor_that_was_not_given_is_closed(program: Path) -> None:
    read, write = os.pipe()
    process = start_file(program, [str(write)])
    assert process.wait(30) != 0
    os.close(write)
    assert os.read(read, 10) == b""
    os.close(read)


def test_the_command_finds_what_we_find(hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "says_its_path.py").write_text("import sys\ndef main(): print(*sys.argv[1:], *sys.path, sep='\\n')\n")
    monkeypatch.syspath_prepend(extra)
    monkeypatch.syspath_prepend("")
    found = subprocess.run(
        module_command("says_its_path", ["x"]), capture_output=True, text=True, timeout=60, check=True
    )
    first, *path = found.stdout.splitlines()
    assert first == "x"
    assert str(extra) in path
    assert not {"", str(hostile)} & set(path), "the working directory is no place for modules of ours"
    assert set(path) >= {entry for entry in sys.path if entry}
