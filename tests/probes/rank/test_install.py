"""Where yama lets only ancestors look into a process, the job's processes let the advisor; elsewhere nothing is asked of the kernel."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.commands import machine_checks
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.launch.job_environment import inherited_environment, with_recorder
from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder
from rn50_advisor.probes.host.stacks.process_stacks import dump_stacks
from rn50_advisor.probes.rank import install

SET_PTRACER = 0x59616D61
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
STAT = "700 (python -m a) b) S " + " ".join(str(field) for field in range(4, 22)) + " 4321 23 24"
FOLDER = "/dev/shm/rn50-advisor-700-4321-x_8a0"

# What a user's own sitecustomize could do: it runs before the recorder comes.
YAMA_OF_PAPER = """
import builtins, ctypes, io, os

real = builtins.open

class Libc:
    def __init__(self, name):
        pass

    def prctl(self, *arguments):
        with real(os.environ["CALLS"], "a") as calls:
            print(os.getpid(), *arguments, file=calls)

ctypes.CDLL = Libc
builtins.open = lambda file, *a, **k: io.StringIO("1\\n") if str(file).endswith("/ptrace_scope") else real(file, *a, **k)
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of the calls of libc's prctl."""
    calls: list[tuple[Any, ...]] = []

    class Libc:
        def __init__(self, name: None) -> None:
            pass

        def prctl(self, *arguments: Any) -> None:
            calls.append(arguments)

    monkeypatch.setattr(ctypes, "CDLL", Libc)
    monkeypatch.setattr(os, "register_at_fork", lambda *, after_in_child: None)
    return calls


@pytest.mark.parametrize(
    ("scope", "stat", "folder", "let"),
    [
        ("1\n", STAT, FOLDER, True),
        ("0\n", STAT, FOLDER, False),
        ("2\n", STAT, FOLDER, False),
        ("3\n", STAT, FOLDER, False),
        (None, STAT, FOLDER, False),
        ("1\n", None, FOLDER, False),
        ("1\n", STAT, "/dev/shm/rn50-advisor-700-4322-x_8a0", False),
        ("1\n", "700 (torn", FOLDER, False),
        ("1\n", STAT, "/tmp/named-otherwise", False),
    ],
    ids=["yama 1", "yama 0", "yama 2", "yama 3", "no yama", "owner gone", "another process", "torn", "no ring folder"],
)
def test_the_advisor_is_let_look_where_only_relatives_may(
    tmp_path: Path, asked: list[tuple[Any, ...]], *, scope: str | None, stat: str | None, folder: str, let: bool
) -> None:
    tree = {"proc/sys/kernel/yama/ptrace_scope": scope, "proc/700/stat": stat}
    write_tree(tmp_path, {path: text for path, text in tree.items() if text is not None})
    install.permit_inspection(folder, str(tmp_path))
    assert asked == ([(SET_PTRACER, 700, 0, 0, 0)] if let else [])


def test_the_user_can_have_it_left_as_it_is(
    tmp_path: Path, asked: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tree(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": "1\n", "proc/700/stat": STAT})
    for value, times in (("", 1), ("1", 0)):
        monkeypatch.setenv("RN50_ADVISOR_NO_PTRACE", value)
        asked.clear()
        install.permit_inspection(FOLDER, str(tmp_path))
        assert len(asked) == times


def test_a_ring_folder_says_who_its_owner_is(tmp_path: Path, asked: list[tuple[Any, ...]]) -> None:
    rings = RingFolder()
    own = f"proc/{os.getpid()}/stat"
    write_tree(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": "1\n", own: Path(f"/{own}").read_text()})
    install.permit_inspection(str(rings.path), str(tmp_path))
    rings.close(remove=True)
    assert asked == [(SET_PTRACER, os.getpid(), 0, 0, 0)]


def test_a_libc_that_cannot_be_had_is_nothing_to_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tree(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": "1\n", "proc/700/stat": STAT})

    def refuse(name: None) -> None:
        raise OSError("no dlopen in a static program")

    monkeypatch.setattr(ctypes, "CDLL", refuse)
    install.permit_inspection(FOLDER, str(tmp_path))


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Children see a yama, and write into this file what they ask of the kernel."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/sitecustomize.py").write_text(YAMA_OF_PAPER)
    calls = tmp_path / "calls"
    calls.touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    monkeypatch.setenv("CALLS", str(calls))
    return calls


def test_each_process_of_the_job_lets_it_once_and_before_the_job_could(tmp_path: Path, paper: Path) -> None:
    rings = RingFolder()
    (tmp_path / "torch.py").touch()
    script = "import os, torch; child = os.fork(); child and (os.waitpid(child, 0), print(os.getpid(), child))"
    environment = with_recorder(inherited_environment(), rings.path)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    rings.close(remove=True)
    asked = f"{SET_PTRACER} {os.getpid()} 0 0 0"
    assert paper.read_text().splitlines() == [f"{pid} {asked}" for pid in done.stdout.split()]
    assert len(done.stdout.split()) == 2


@pytest.mark.parametrize("reached", [True, False])
def test_doctor_is_let_look_by_the_recorder_alone(paper: Path, monkeypatch: pytest.MonkeyPatch, reached: bool) -> None:
    """By nothing that the check does itself: else it would pass where a run is refused."""
    if not reached:
        monkeypatch.setattr(
            "rn50_advisor.advisor.run.launch.job_environment.with_recorder", lambda variables, ring_folder: variables
        )
    machine_checks.py_spy(sys.executable)
    calls = [call.split()[1:] for call in paper.read_text().splitlines()]
    assert calls == ([[str(SET_PTRACER), str(os.getpid()), "0", "0", "0"]] if reached else [])


def test_py_spy_sees_into_a_process_that_is_not_its_child(tmp_path: Path) -> None:
    scope = SCOPE.read_text().strip() if SCOPE.exists() else "not there"
    if scope != "1" or os.geteuid() == 0:
        pytest.skip(f"THE PERMISSION TO LOOK IS NOT TESTED ON A REAL KERNEL: yama is {scope}, user {os.geteuid()}")
    rings = RingFolder()
    (tmp_path / "torch.py").touch()
    found = {}
    for name, environment in (
        ("watched", with_recorder(inherited_environment(), rings.path)),
        ("alone", inherited_environment()),
    ):
        command = [sys.executable, "-c", "import torch; print(flush=True); input()"]
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            found[name] = dump_stacks(child.pid, timeout_s=30)
            child.communicate(b"\n")
    rings.close(remove=True)
    assert isinstance(found["alone"], ProbeGap) and "not permitted" in found["alone"].reason
    assert not isinstance(found["watched"], ProbeGap)
