"""Profiles of the training thread: what py-spy writes, and how its stacks are counted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.stacks.process_stacks import Frame
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack, parse_raw, profile_stacks

SCRIPT = "/job/train.py"


def test_stacks_are_read_as_py_spy_writes_them() -> None:
    text = (
        "thread (26616): MainThread;<module> (/job/train.py:14);step (/job/my (old) model.py:8) 418\n"
        "thread (0x7F01AB): pin;run (/usr/lib/python3.11/threading.py:982) 3\n"
        "thread (77);<module> (/job/a.py:1) 2\n"
        "process 12;gone 1\n\n"
    )
    assert list(parse_raw(text)) == [
        CountedStack(
            26616,
            "MainThread",
            (Frame("step", "/job/my (old) model.py", 8), Frame("<module>", "/job/train.py", 14)),
            418,
        ),
        CountedStack(None, "pin", (Frame("run", "/usr/lib/python3.11/threading.py", 982),), 3),
        CountedStack(77, "", (Frame("<module>", "/job/a.py", 1),), 2),
    ]


def test_a_real_process_is_sampled_many_times() -> None:
    code = "import sys\ndef read_on():\n    sys.stdin.readline()\nprint('ready', flush=True)\nread_on()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        child.stdout.readline()
        found = profile_stacks(child.pid, seconds=1, rate_hz=50, timeout_s=30)
        awake = profile_stacks(child.pid, asleep=False, seconds=1, rate_hz=50, timeout_s=30)
        child.stdin.close()
    if isinstance(found, ProbeGap) and "not permitted" in found.reason:
        pytest.skip(f"PROFILES OF REAL PROCESSES ARE NOT TESTED HERE: {found.reason}")
    assert not isinstance(found, ProbeGap)
    assert max(found, key=lambda s: s.count).frames[0] == Frame("read_on", "<string>", 3)
    assert awake == (), "it sleeps"


def test_a_process_that_is_gone_is_a_gap() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert isinstance(profile_stacks(child.pid, seconds=1), ProbeGap)


def test_without_a_place_for_temporary_files_there_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))  # a full disk, or one that may only be read
    answer = profile_stacks(1)
    assert isinstance(answer, ProbeGap) and "temporary" in answer.reason and "TMPDIR" in answer.hint
