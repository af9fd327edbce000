"""A shell's handling of one foreground job, for tests: own group, terminal handed over, stops seen, continued on demand.

It is the leader of a session whose controlling terminal is stdin. Each change of the job is one line on the descriptor named first;
each byte read from the second one continues the job in the foreground.
"""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    events, commands = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        os.setpgid(0, 0)
        os.tcsetpgrp(0, os.getpid())
        signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.execv(sys.argv[3], sys.argv[3:])
    os.write(events, f"started {pid}\n".encode())
    while True:
        _, status = os.waitpid(pid, os.WUNTRACED)
        os.tcsetpgrp(0, os.getpgid(0))
        if not os.WIFSTOPPED(status):
            os.write(events, f"ended {os.waitstatus_to_exitcode(status)}\n".encode())
            return
        os.write(events, f"stopped {os.WSTOPSIG(status)}\n".encode())
        os.read(commands, 1)
        os.tcsetpgrp(0, pid)
        os.killpg(pid, signal.SIGCONT)
        os.write(events, b"continued\n")


if __name__ == "__main__":
    main()
