"""Ranks that are started one by one: each knows who it is, and one that fails ends the others."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from samples.faults.observe import START_RANKS

SAYS_WHO = """
import os
names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_PORT", "OMP_NUM_THREADS")
os.write(1, (" ".join(os.environ[name] for name in names) + "\\n").encode())  # in one piece
"""
FAILS_OR_STAYS = """
import os, signal, sys
if os.environ["RANK"] == "1":
    sys.exit(3)
signal.pause()
"""
STAYS = """
import os, signal
os.write(1, b"here\\n")
signal.pause()
"""


def start(folder: Path, code: str) -> subprocess.Popen[str]:
    script = folder / "job.py"
    script.write_text(code)
    return subprocess.Popen([sys.executable, str(START_RANKS), "2", str(script)], stdout=subprocess.PIPE, text=True)


def test_each_rank_is_told_who_it_is(tmp_path: Path) -> None:
    job = start(tmp_path, SAYS_WHO)
    lines = sorted(line.split() for line in job.communicate(timeout=60)[0].splitlines())
    assert job.returncode == 0
    assert [words[:4] for words in lines] == [["0", "0", "2", "2"], ["1", "1", "2", "2"]]
    assert len({words[4] for words in lines}) == 1, "they meet at one port"


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    job = start(tmp_path, FAILS_OR_STAYS)
    assert job.wait(timeout=60) == 1


def test_ranks_end_with_what_started_them(tmp_path: Path) -> None:
    job = start(tmp_path, STAYS)
    assert job.stdout is not None
    assert [job.stdout.readline() for _ in range(2)] == ["here\n", "here\n"]
    job.send_signal(signal.SIGTERM)
    # the pipe is at its end only once no rank holds it any more
    assert job.communicate(timeout=60)[0] == ""
    assert job.returncode == 128 + signal.SIGTERM
