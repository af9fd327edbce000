"""Processes as /proc shows them, real and made up. Not a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from probe_trees import stat_line, write_tree
from rn50_advisor.probes.host.process.process_probe import (
    ProcessTree,
)


@contextmanager
def python(code: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a real Python with pipes, in its own process group, so that the test runner's group is not taken for the job's."""
    command = [sys.executable, "-c", code]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def say(child: subprocess.Popen[str], line: str = "") -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def process(root: Path, pid: int, parent: int, **stat: int | str) -> None:
    write_tree(root, {f"proc/{pid}/stat": stat_line(pid, parent=parent, **stat), f"proc/{pid}/cmdline": f"p{pid}\0"})  # type: ignore[arg-type]


def end(root: Path, *pids: int) -> None:
    for pid in pids:
        for file in (root / f"proc/{pid}").iterdir():
            file.unlink()
        (root / f"proc/{pid}").rmdir()


def pids(tree: ProcessTree) -> set[int]:
    return {m.pid for m in tree.members()}


def recorded(root: Path, pid: int = 7, **stat: int) -> dict[str, str]:
    files = {
        "stat": stat_line(pid, **{"cpu_ticks": 250, "threads": 12, "rss_pages": 100, **stat}),  # type: ignore[arg-type]
        "schedstat": "9000000000 1500000000 77\n",
        "io": "rchar: 5000\nwchar: 1\nsyscr: 1\nsyscw: 1\nread_bytes: 4096\nwrite_bytes: 512\ncancelled_write_bytes: 0\n",
        "status": (
            "Name:\tpython\nVmRSS:\t  400 kB\nRssAnon:\t  200 kB\nRssFile:\t  150 kB\nRssShmem:\t   50 kB\n"
            "voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t42\n"
        ),
        "smaps_rollup": "0-1 ---p 0 0:0 0 [rollup]\nRss: 400 kB\nPrivate_Clean: 30 kB\nPrivate_Dirty: 90 kB\n",
        f"task/{pid}/schedstat": "9000000000 1500000000 77\n",
        f"task/{pid + 1000}/schedstat": "100000000 2500000000 9\n",
        "cmdline": "python\0train.py\0--x y\0",
    }
    return {f"proc/{pid}/{name}": text for name, text in files.items()}
