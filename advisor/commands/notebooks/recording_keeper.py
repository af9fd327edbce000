"""The process beside one that records itself: it does the launcher's work for a job that it did not start.

It leaves the tree of the recorded process, so that its own work counts for nothing there, and ends with what it records or with that
process, whichever ends first.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import sqlite3
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.companion import Companion
from rn50_advisor.advisor.run.launch.job_end import describe_error
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder, sweep
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.run.sidefiles.recorder_requests import allow

_LOOK_MS = 500
UNSEEN = ProbeGap(
    "start-up, output and exit code",
    "job",
    "watch() began inside a running process, whose start, output and end it does not see; an exception counts as exit code 1",
    "rn50-advisor run sees all of a job",
)


def main() -> None:
    """Arguments: the descriptors of two pipes, for orders and for answers. The first order has all that is needed."""
    orders, answers = int(sys.argv[1]), int(sys.argv[2])
    if os.fork():
        os._exit(0)
    for descriptor in (orders, answers):
        os.set_inheritable(descriptor, False)
    try:
        _keep(_Talk(orders, answers))
    finally:
        os._exit(0)  # threads that a disk holds are not waited for


class _Talk:
    """JSON lines with the recorded process, which may be gone."""

    def __init__(self, orders: int, answers: int) -> None:
        self.orders = orders
        self._answers = answers
        self._unread = b""
        self.ended = False

    def read(self) -> list[dict[str, Any]]:
        """Waits for something to read."""
        data = os.read(self.orders, 65536)
        self.ended = not data
        *lines, self._unread = (self._unread + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def answer(self, **what: Any) -> None:
        with contextlib.suppress(OSError):
            os.write(self._answers, json.dumps(what).encode() + b"\n")


def _keep(talk: _Talk) -> None:
    first: list[dict[str, Any]] = []
    while not first and not talk.ended:
        first = talk.read()
    if not first:
        return
    try:
        rings, plan = _begin(first[0])
    except Exception as error:  # noqa: BLE001 - whatever it is, the recorded process goes on and says so
        talk.answer(event="failed", reason=getattr(error, "message", "") or describe_error(error))
        return
    try:
        job_pid = int(first[0]["pid"])
        companion = Companion(plan, job_pid)
        companion.start()
        talk.answer(event="ready", rings=os.fspath(rings.path), run=os.fspath(plan.run_folder or ""))
        end = _wait(talk, companion, job_pid)
        recorded, complaint = companion.finish(end["exit_code"], end["signal"], end["t_ns"])
        if recorded and plan.run_folder is not None:
            _note_unseen(plan.run_folder)
        talk.answer(event="done", recorded=recorded, complaint=complaint)
    finally:
        rings.close(remove=True)  # the recorded process may still map its ring: that needs no name


def _begin(order: Mapping[str, Any]) -> tuple[RingFolder, RecordingPlan]:
    from rn50_advisor.advisor.store.run_folders import new_run_folder

    sweep()
    rings = RingFolder()
    try:
        options = RunOptions()
        folder = new_run_folder(Path(order["run_dir"]), order["name"], time.time())
        with contextlib.suppress(OSError):  # the recorder then keeps to the usual one
            allow(rings.path, options.overhead_budget)
        return rings, RecordingPlan(
            argv=tuple(order["argv"]),
            run_folder=folder,
            name=order["name"],
            options=options,
            ring_folder=rings.path,
            began_ns=time.perf_counter_ns(),
            began_unix_s=time.time(),
            launcher_pid=os.getpid(),
        )
    except BaseException:
        rings.close(remove=True)
        raise


def _wait(talk: _Talk, companion: Companion, job_pid: int) -> Mapping[str, Any]:
    """Returns how the recorded part ended; without exit code and signal where the process died within it."""
    process = _descriptor_of(job_pid)
    try:
        while True:
            poller = select.poll()
            for descriptor in (talk.orders, process, companion.descriptor):
                if descriptor is not None:
                    poller.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poller.poll(_LOOK_MS)}
            companion.look()
            if talk.orders in ready:
                for message in talk.read():
                    if message["event"] == "asked_to_end":
                        companion.asked_to_end(message["signal"])
                    elif message["event"] == "ended":
                        return message
            if talk.ended or process in ready:
                return {"exit_code": None, "signal": None, "t_ns": time.perf_counter_ns()}
    finally:
        if process is not None:
            os.close(process)


def _descriptor_of(pid: int) -> int | None:
    """Readable once the process has ended: its children may hold the pipe open. None where the kernel has no such thing."""
    with contextlib.suppress(OSError, AttributeError):
        return os.pidfd_open(pid)
    return None


def _note_unseen(run: Path) -> None:
    from rn50_advisor.advisor.store.database import add_gap

    with contextlib.suppress(sqlite3.Error, OSError):
        add_gap(run, UNSEEN)
