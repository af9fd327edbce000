"""A launcher that inherits the job's orphans reaps them, and leaves its own children to whoever waits for them."""

from __future__ import annotations

import subprocess
import sys

# The process is made a subreaper (PR_SET_CHILD_SUBREAPER), as a container's init is one.
PRELUDE = '''
import ctypes, os, subprocess, time
from rn50_advisor.advisor.run.launch.orphans import reap_adopted
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)

def orphan():
    """It ends only once its parent is gone."""
    read, write = os.pipe()
    command = ["sh", "-c", f"cat /proc/self/fd/{read} & echo $!"]
    shell = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[read])
    pid = int(shell.stdout.readline())
    shell.wait()
    os.close(read)
    os.close(write)
    return pid

def ended(pid):
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

def waits(pid):
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False
'''


def output_of(code: str) -> str:
    command = [sys.executable, "-c", PRELUDE + code]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


def test_orphans_are_reaped() -> None:
    code = """
pids = [orphan(), orphan(), orphan()]
for pid in pids: ended(pid)
reap_adopted(())
print([waits(pid) for pid in pids])
"""
    assert output_of(code) == "[False, False, False]"


def test_a_child_that_somebody_waits_for_keeps_its_exit_status() -> None:
    code = """
child = subprocess.Popen(["sh", "-c", "exit 5"])
ended(child.pid)
reap_adopted({child.pid})
print(child.wait())
"""
    assert output_of(code) == "5"


def test_orphans_behind_a_child_are_reaped_once_it_was_waited_for() -> None:
    code = """
child = subprocess.Popen(["sh", "-c", "exit 5"])
ended(child.pid)
pid = orphan()
ended(pid)
reap_adopted({child.pid})
code = child.wait()
reap_adopted({child.pid})
print(code, waits(pid))
"""
    assert output_of(code) == "5 False"


def test_without_any_child_nothing_happens() -> None:
    assert output_of("reap_adopted(()); print('done')") == "done"


def test_a_child_that_runs_is_left_alone() -> None:
    code = """
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
reap_adopted(())
print(child.poll(), end=" ")
child.stdin.close()
print(child.wait())
"""
    assert output_of(code) == "None 0"
