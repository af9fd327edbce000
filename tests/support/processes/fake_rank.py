"""A process that writes a rank's ring like the recorder, without torch, controlled by lines on stdin.

`steps N`, `phase NAME` (and stay there), `exec` (itself again), `exit CODE`, `die SIGNAL`, `leave` (an orderly end), `worker`, `child`.
Each is answered with `ok` on stdout. The first argument is its rank, the second the length of its steps' gaps in ms.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    KIND_BATCH,
    KIND_STEP,
    PHASE_CODE,
    ROLE_RANK,
    ROLE_WORKER,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.ring import Ring

STEP_NS = 10_000_000


def make_step(number: int, gap_ns: int) -> tuple[int, ...]:
    end = time.perf_counter_ns()
    values = dict.fromkeys(STEP_FIELDS, 0)
    values.update(step=number, t_start_ns=end - STEP_NS, t_end_ns=end, forward_ns=STEP_NS - gap_ns, gap_ns=gap_ns)
    return tuple(values.values())


def hold_here() -> None:
    """Waits for a line; a stack sample must find this function."""
    answer("holding")
    sys.stdin.readline()


def answer(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def start_worker(folder: str) -> None:
    written, writes = os.pipe()
    if os.fork() == 0:
        ring = Ring(f"{folder}/worker-{os.getpid()}.ring", slots=128, role=ROLE_WORKER, rank=-1, worker=0)
        for number in range(3):
            values = dict.fromkeys(BATCH_FIELDS, 0)
            values.update(t_start_ns=number, t_end_ns=number + 1, samples=8)
            ring.write(KIND_BATCH, 0, tuple(values.values()))
        os.write(writes, b"x")
        signal.pause()
    os.read(written, 1)


def main() -> None:
    folder = os.environ["RN50_ADVISOR_DIR"]
    ring, steps = None, 0
    answer(f"pid {os.getpid()}")
    while line := sys.stdin.readline().split():
        command, argument = line[0], line[1] if len(line) > 1 else ""
        if ring is None and command in ("steps", "phase"):
            path = f"{folder}/rank-{os.getpid()}.ring"
            ring = Ring(path, slots=1024, role=ROLE_RANK, rank=int(sys.argv[1]), local_rank=-1, world_size=-1)
        if command == "steps":
            for _ in range(int(argument)):
                ring.write(KIND_STEP, 0, make_step(steps, int(sys.argv[2]) * 1_000_000))
                steps += 1
                ring.phase(PHASE_CODE["forward"], steps, time.perf_counter_ns())
        elif command == "phase":
            ring.phase(PHASE_CODE[argument], steps, time.perf_counter_ns())
            hold_here()
        elif command == "facts":
            Path(f"{folder}/facts-{os.getpid()}.json").write_text(argument)
        elif command == "worker":
            start_worker(folder)
        elif command == "child":
            process = subprocess.Popen(
                ["/bin/sleep", "300"], start_new_session=argument == "own", stdin=subprocess.DEVNULL
            )
            answer(f"child {process.pid}")
        elif command == "leave":
            ring.end()
            sys.exit(int(argument or 0))
        elif command == "exit":
            sys.exit(int(argument))
        elif command == "exec":
            os.execv(sys.executable, [sys.executable, *sys.argv])
        elif command == "die":
            os.kill(os.getpid(), int(argument))
        answer("ok")


if __name__ == "__main__":
    main()
