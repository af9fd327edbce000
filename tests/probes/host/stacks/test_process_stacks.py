"""Stacks of real processes, and which frame is the user's."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from probe_trees import write_tree
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.stacks import process_stacks
from rn50_advisor.probes.host.stacks.process_stacks import Frame, dump_stacks, explain_refusal, is_user_file, user_frame

SCRIPT = """\
import sys, threading

def stuck_here(ready):
    ready.set()
    sys.stdin.readline()

def background(ready, stop):
    ready.set()
    stop.wait()

ready, stop = threading.Event(), threading.Event()
threading.Thread(target=background, args=(ready, stop), name="uploader").start()
ready.wait()
announce = type("A", (), {"set": lambda self: print("ready", flush=True)})()
stuck_here(announce)
stop.set()
"""


def test_a_real_process_shows_its_stack(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        found = dump_stacks(child.pid, timeout_s=30)
        child.stdin.write("\n")
        child.stdin.close()
    if isinstance(found, ProbeGap) and "not permitted" in found.reason:
        pytest.skip(f"STACKS OF REAL PROCESSES ARE NOT TESTED HERE: {found.reason}")
    assert not isinstance(found, ProbeGap)
    (main,) = (stack for stack in found if stack.main)
    frame = user_frame(main.frames)
    assert frame == Frame("stuck_here", str(script), 5)
    assert [f.function for f in main.frames] == ["stuck_here", "<module>"]
    # older Pythons do not keep it where py-spy looks
    known = {child.pid} if sys.version_info >= (3, 11) else {child.pid, None}
    assert main.thread_id in known
    (uploader,) = (stack for stack in found if stack.name == "uploader")
    assert not uploader.main
    waiting = user_frame(uploader.frames)
    assert waiting is not None
    assert (waiting.function, waiting.line) == ("background", 9)
    assert uploader.frames[0].file.endswith("threading.py")


@pytest.mark.parametrize("command", [["cat"], [sys.executable, "-c", "print(flush=True); input()"]])
def test_no_python_and_no_process_are_gaps(command: list[str]) -> None:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        if command[0] == "cat":
            found = dump_stacks(child.pid, timeout_s=30)
        child.communicate(b"\n")
    if command[0] != "cat":
        found = dump_stacks(child.pid, timeout_s=30)
    assert isinstance(found, ProbeGap)
    assert found.scope == f"pid:{child.pid}"
    assert found.reason


def program(path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("exec sleep 60", "did not finish within 0.2 s"),
        ('echo \'{"not": "a list of threads"}\'', "unexpected output"),
        ("echo nonsense", "unexpected output"),
        ("echo 'Error: Failed to find python version from target process' >&2; exit 1", "does not know"),
        ("exit 1", "without a message"),
    ],
)
def test_a_py_spy_that_fails_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str) -> None:
    fake = program(tmp_path / "py-spy", body)
    monkeypatch.setattr(process_stacks, "find_py_spy", lambda: fake)
    found = dump_stacks(1, timeout_s=0.2 if "sleep" in body else 30)
    assert isinstance(found, ProbeGap)
    assert words in found.reason


def test_no_py_spy_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Callable[[], None] = lambda: None  # noqa: E731
    monkeypatch.setattr(process_stacks, "find_py_spy", nothing)
    found = dump_stacks(1)
    assert isinstance(found, ProbeGap)
    assert "pip install py-spy" in found.hint


@pytest.mark.parametrize(
    ("message", "yama", "hint"),
    [
        ("Permission Denied: Try running again with elevated permissions", None, "SYS_PTRACE"),
        ("Error: Operation not permitted (os error 1)", "1", "ptrace_scope=0"),
        ("Permission Denied: x", "3", "until reboot"),
    ],
)
def test_a_refusal_has_a_hint_that_allows_it(tmp_path: Path, message: str, yama: str | None, hint: str) -> None:
    if yama:
        write_tree(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": yama})
    reason, found = explain_refusal(message, tmp_path)
    assert reason == "not permitted to read the process's memory"
    assert hint in found


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("/home/me/train.py", True),
        ("train.py", True),
        ("/home/me/torch/train.py", True),
        ("/job/lib/data.py", True),
        ("/usr/lib/python3.11/threading.py", False),
        ("/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py", False),
        ("/usr/lib/python3/dist-packages/yaml/__init__.py", False),
        ("/home/me/src/pytorch/torch/nn/modules/module.py", False),
        ("/home/me/src/pytorch/torch/_tensor.py", False),
        ("/tmp/torchinductor_me/ab/cabcd.py", False),
        ("<frozen importlib._bootstrap>", False),
        ("<string>", False),
        ("", False),
        ("__loader__", False),
        (str(Path(process_stacks.__file__).parents[2] / "rank" / "marks.py"), False),
    ],
)
def test_whose_file_a_frame_is_in(file: str, users: bool) -> None:
    assert is_user_file(file) is users


def test_a_thread_in_libraries_alone_has_no_user_frame() -> None:
    frames = (Frame("wait", "/usr/lib/python3.11/threading.py", 1), Frame("run", "<frozen runpy>", 2))
    assert user_frame(frames) is None
