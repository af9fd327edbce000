"""Threads that wait for the interpreter, as the kernel shows real ones, and threads that wait for something else."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from rn50_advisor.probes.host.process.interpreter_lock import (
    InterpreterSight,
    NoInterpreter,
    interpreter_memory,
    timed_wait,
)

TIMED = "202 0x7f0a5874e6f4 0x89 0x0 0x7ffe34caa8c0 0x0 0xffffffff 0x7ffe34caa800 0x7f0a58191f16"
MAPS = """\
55d0c0000000-55d0c0001000 r--p 00000000 fe:00 7       /usr/bin/python3.11
7f0a00000000-7f0a00100000 rw-p 00000000 00:00 0
7f0a58200000-7f0a58644000 r-xp 00000000 fe:00 26933   /root/lib/libpython3.11.so.1.0
7f0a58644000-7f0a58778000 rw-p 00443000 fe:00 26933   /root/lib/libpython3.11.so.1.0
7f0a58778000-7f0a587ba000 rw-p 00000000 00:00 0
7f0a587c0000-7f0a58800000 rw-p 00000000 00:00 0
7f0a60000000-7f0a60010000 rw-p 00001000 fe:00 31      /site-packages/torch/lib/libtorch_python.so
"""


@pytest.mark.parametrize(
    ("line", "address"),
    [
        (TIMED, 0x7F0A5874E6F4),
        (TIMED.replace("0x89", "0x189"), 0x7F0A5874E6F4),  # by the other clock
        (TIMED.replace("0x7ffe34caa8c0", "0x0"), None),  # for as long as it takes: a lock, a team of threads
        (TIMED.replace("0x89", "0x81"), None),  # it wakes somebody
        (TIMED.replace("202", "271"), None),
        ("running", None),
        ("-1 0x7ffe34caa800 0x7f0a58191f16", None),
        ("", None),
    ],
)
def test_a_wait_with_a_timeout_differs_from_others(line: str, address: int | None) -> None:
    assert timed_wait(line, machine="x86_64") == address


def test_the_interpreters_memory_is_its_own_data_and_what_follows_it() -> None:
    own = ((0x7F0A58644000, 0x7F0A58778000), (0x7F0A58778000, 0x7F0A587BA000))
    assert interpreter_memory(MAPS) == own, "neither its code, nor the heap, nor a library of another's"
    inside = MAPS.replace("/root/lib/libpython3.11.so.1.0", "/conda/bin/python3.12")
    assert interpreter_memory(inside) == own, "without a library of its own it is in the program"


HOLDER = """\
def hold():
    while True:
        sum(range(50_000))
"""
SLEEPERS = """\
def hold():
    {}
"""
SCRIPT = """\
import queue, threading, time
{hold}
threading.Thread(target=hold, daemon=True).start()
print("ready", flush=True)
{main}
"""
WORKS = "while True: sum(range(1000))"
WAITS_FOR_A_QUEUE = "queue.Queue().get(timeout=600)"


def found_waiting(tmp_path: Path, hold: str, main: str, *, until: bool) -> bool:
    """True if one of many samples found the main thread waiting; `until`: sample until one does."""
    script = tmp_path / "job.py"
    script.write_text(SCRIPT.format(hold=hold, main=main))
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            child.stdout.readline()
            sight = InterpreterSight(child.pid, child.pid)
            deadline, left = time.monotonic() + 60.0, 100
            while time.monotonic() < deadline and (until or left):
                if sight.waits():
                    return True
                left -= 1
            return False
        except NoInterpreter as error:
            pytest.skip(f"WAITS OF REAL THREADS ARE NOT TESTED HERE: {error}")
        except PermissionError as error:
            pytest.skip(f"WAITS OF REAL THREADS ARE NOT TESTED HERE: {error}")
        finally:
            child.kill()


def test_a_thread_that_is_kept_out_is_seen_waiting(tmp_path: Path) -> None:
    assert found_waiting(tmp_path, HOLDER, WORKS, until=True)


@pytest.mark.parametrize(
    ("hold", "main"),
    [
        pytest.param(SLEEPERS.format("time.sleep(600)"), WORKS, id="another thread sleeps"),
        pytest.param(SLEEPERS.format("queue.Queue().get()"), WORKS, id="another thread waits for work"),
        pytest.param(
            SLEEPERS.format("time.sleep(600)"), WAITS_FOR_A_QUEUE, id="it waits with a timeout for something else"
        ),
    ],
)
def test_no_other_wait_is_taken_for_it(tmp_path: Path, hold: str, main: str) -> None:
    assert not found_waiting(tmp_path, hold, main, until=False)


def test_a_thread_that_is_gone_is_no_answer(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        InterpreterSight(7, 7, proc=tmp_path)
