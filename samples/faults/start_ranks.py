"""Starts the ranks of a job as srun and mpirun do: processes whose environment holds their rank. Arguments: RANKS SCRIPT ARGUMENTS…

torchrun imports torch before its ranks do, which adds two seconds to each run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence


def main(ranks: int, script: Sequence[str]) -> int:
    """Returns 0 once all ranks have ended in order; if one fails, ends the others and returns 1."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            own = {**group, **identity(rank, ranks)}
            # torchrun's default: one thread each, unless set
            environment = {"OMP_NUM_THREADS": "1", **os.environ, **own}
            running.append(subprocess.Popen([sys.executable, *script], env=environment))
        return wait(running)
    finally:
        for process in running:
            if process.poll() is None:
                process.terminate()
        for process in running:
            process.wait()


def wait(running: Sequence[subprocess.Popen[bytes]]) -> int:
    """Waits until all ranks have ended or one has failed. Returns the exit code: 0 or 1."""
    left = {process.pid for process in running}
    while left:
        who = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # WNOWAIT: its Popen object reaps it
        ended = next(process for process in running if process.pid == who.si_pid)
        left.discard(ended.pid)
        if ended.wait() != 0:
            return 1
    return 0


def identity(rank: int, ranks: int) -> dict[str, str]:
    return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return int(asked.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
