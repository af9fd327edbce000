"""Copies the job's terminal output into a file with secrets masked, and survives its parent. Standard library only.

The job must never wait for it: it keeps reading when the disk is full or does not answer, and counts what it had to drop. What masks is
loaded by the thread that writes, so that reading begins at once; where that fails nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import deque
from pathlib import Path

_READ_BYTES = 1 << 16
_HELD_BYTES_MAX = 32 << 20  # what a disk that does not answer may owe us
_LAST_WRITE_S = 10.0  # without any progress
_UNFINISHED_AFTER_S = 0.1  # nothing more came: what stands of a progress bar is shown
_SWITCH_S = 0.0005  # the thread that reads the terminal waits no longer than that for the one that masks


class LogWriter:
    """A thread that writes; `put` never waits."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor = -1
        self._held: deque[bytes] = deque()
        self._held_bytes = 0
        self._dropped = 0
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def put(self, data: bytes) -> None:
        with self._changed:
            if self._held_bytes + len(data) > _HELD_BYTES_MAX:
                self._dropped += len(data)
                return
            self._held.append(data)
            self._held_bytes += len(data)
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        left = -1
        while self._thread.is_alive() and left != self._held_bytes:  # masking takes half a second a megabyte
            left = self._held_bytes
            self._thread.join(_LAST_WRITE_S)

    def _run(self) -> None:
        from rn50_advisor.advisor.store.secrets.secret_lines import MaskedLines  # noqa: PLC0415 - 60 ms, which the terminal need not wait for

        lines = MaskedLines()
        while True:
            with self._changed:
                while not self._held and not self._ended:
                    if not self._changed.wait(_UNFINISHED_AFTER_S if lines.waiting() else None):
                        break
                data = self._held.popleft() if self._held else b""
                self._held_bytes -= len(data)
                ended = self._ended and not data
            if ended:
                break
            self._write(lines.take(data) if data else lines.look())
        self._write(lines.end())

    def _write(self, data: bytes) -> None:
        """Whole, or counted as dropped; the next write that succeeds says in front of it how much is missing."""
        with self._changed:
            missing, self._dropped = self._dropped, 0
        if missing:
            note = b"\n[rn50-advisor: %d bytes of output are missing here]\n" % missing
            written = self._write_out(note)
            if written < len(note):
                self._take_back(written)
                self._drop(missing + len(data))
                return
        self._drop(len(data) - self._write_out(data))

    def _drop(self, count: int) -> None:
        with self._changed:
            self._dropped += count

    def _write_out(self, data: bytes) -> int:
        view, done = memoryview(data), 0
        try:
            if self._descriptor < 0 and data:
                self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            while done < len(data):
                done += os.write(self._descriptor, view[done:])
        except OSError:
            pass  # no room, or no folder any more: the caller counts
        return done

    def _take_back(self, written: int) -> None:
        """Half a note would be taken for output."""
        if written:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)


def copy_until_closed(master: int, log: LogWriter) -> None:
    """Until no process has the terminal open any more."""
    while True:
        try:
            data = os.read(master, _READ_BYTES)
        except OSError:  # EIO: the last one closed it
            break
        if not data:
            break
        log.put(data)
    log.end()


def main() -> None:
    """Arguments: the descriptor of the terminal's master side, and the file."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    sys.setswitchinterval(_SWITCH_S)
    sys.path.append(str(Path(__file__).parents[4]))
    copy_until_closed(int(sys.argv[1]), LogWriter(sys.argv[2]))


if __name__ == "__main__":
    main()
