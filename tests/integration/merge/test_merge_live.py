"""Two agents with a port between them: one shows what the other sends; the death of one harms neither the jobs nor the other run."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli_process import advisor
from fake_job import fake_rank
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.merge.live_merge import ADDRESS_NAME
from rn50_advisor.advisor.model.recording import Recording
from waiting import wait_for

QUICK = {"merge_period_s": 0.2}


def listening(folder: Path) -> dict[str, Any]:
    return {"merge_listen": "127.0.0.1:0", "merge_token_file": str(folder / "token")}


def sending(folder: Path, address: str) -> dict[str, Any]:
    return {"merge_to": address, "merge_token_file": str(folder / "token"), **QUICK}


def address_of(run: Path) -> str:
    file = run / ADDRESS_NAME
    return str(wait_for(lambda: file.exists() and file.read_text().strip(), "listening"))


def merged(run: Path, condition: Callable[[Recording], object], what: str) -> Recording:
    wait_for(lambda: condition(read_job(run)), what)
    return read_job(run)


def test_a_run_shows_the_ranks_that_another_node_sends_while_they_train(tmp_path: Path) -> None:
    with fake_rank(tmp_path / "a", rank=0, options=listening(tmp_path)) as first:
        first.send("steps 20")
        address = address_of(first.run_folder)
        with fake_rank(tmp_path / "b", rank=1, options=sending(tmp_path, address)) as second:
            second.send("steps 20")
            now = merged(first.run_folder, lambda now: {0, 1} <= now.steps.keys(), "the other node's steps")
            assert [node.ranks for node in now.nodes] == [(0,), (1,)]
            second.send("steps 30")
            second.order("exit 3")
            own = second.end(3)
        first.order("leave")
        first.end(0)
    after = read_job(first.run_folder)
    assert after.steps[1]["count"].sum() == own.steps[1].size == 50
    assert (after.meta.exit_code, after.nodes[1].recording.meta.exit_code) == (3, 3)


def test_a_killed_sending_agent_harms_neither_its_job_nor_the_merge(tmp_path: Path) -> None:
    with fake_rank(tmp_path / "a", rank=0, options=listening(tmp_path)) as first:
        first.send("steps 20")
        with fake_rank(tmp_path / "b", rank=1, options=sending(tmp_path, address_of(first.run_folder))) as second:
            second.send("steps 20")
            merged(first.run_folder, lambda now: 1 in now.steps, "the other node's steps")
            os.kill(second.process.pid, signal.SIGKILL)
            second.process.wait()
            second.send("steps 5")  # the job goes on
            first.send("steps 5")
            now = merged(first.run_folder, lambda now: len(now.steps[0]) == 25, "more steps")
            assert now.steps[1]["count"].sum() == 20
            second.order("leave")
        first.order("leave")
        recording = first.end(0)
    assert not [gap for gap in recording.gaps if gap.metric == "node.merge"]
    assert read_job(first.run_folder).meta.ended_ns is not None


def test_a_killed_listening_agent_costs_a_node_one_gap_and_nothing_else(tmp_path: Path) -> None:
    with fake_rank(tmp_path / "a", rank=0, options=listening(tmp_path)) as first:
        first.send("steps 5")
        with fake_rank(tmp_path / "b", rank=1, options=sending(tmp_path, address_of(first.run_folder))) as second:
            second.send("steps 20")
            merged(first.run_folder, lambda now: 1 in now.steps, "the other node's steps")
            os.kill(first.process.pid, signal.SIGKILL)
            first.process.wait()
            second.send("steps 5")
            second.until(lambda now: any(gap.metric == "node.merge" for gap in now.gaps), "the gap")
            second.order("leave")
            recording = second.end(0)
        first.order("leave")
    assert recording.steps[1].size == 25


def test_a_flooded_port_harms_neither_job_nor_run(tmp_path: Path) -> None:
    garbage = os.urandom(1 << 16)
    with fake_rank(tmp_path / "a", rank=0, options=listening(tmp_path)) as first:
        host, port = address_of(first.run_folder).split(":")
        for _ in range(50):
            with socket.create_connection((host, int(port))) as link:
                try:
                    link.sendall(garbage)
                except OSError:
                    continue  # cut off in the middle of it
        first.send("steps 30")
        first.order("leave")
        recording = first.end(0)
    assert recording.steps[0].size == 30
    assert [gap.scope for gap in recording.gaps if gap.metric == "node.merge"] == ["port"]


NO_ZMQ = "import sys; sys.modules['zmq'] = None\n"
JOB = """
import os, sys
with open("job", "w") as found:
    found.write(f"{'zmq' in sys.modules and sys.modules['zmq'] is not None} {len(os.listdir('/proc/self/task'))}")
sys.exit(3)
"""


SIDES = [("--merge-listen", "127.0.0.1:0"), ("--merge-to", "127.0.0.1:1"), ()]


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("missing", [True, False], ids=["without pyzmq", "with pyzmq"])
def test_a_job_runs_with_or_without_pyzmq_and_never_imports_it(
    missing: bool, side: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first/sitecustomize.py").write_text(NO_ZMQ if missing else "")
    options = (*side, "--merge-token-file", "token") if side else ()
    command = ("run", *options, "--", sys.executable, "-c", JOB)
    done = advisor(*command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "first")})
    assert (done.returncode, done.stdout) == (3, b"")
    assert (tmp_path / "job").read_text() == "False 1"
    assert done.stderr.count(b'pip install "rn50-advisor[cluster]"') == (missing and bool(side))
