"""Textual's driver for a terminal that may vanish: the screen ends instead of reading its end of file for ever."""

from __future__ import annotations

import contextlib
import select
from threading import Thread
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

HUNG_UP = "hung up"
_LOOK_MS = 1000


class TerminalDriver(LinuxDriver):
    """Leaves the app with the answer `HUNG_UP` when the terminal is closed and its SIGHUP did not end us.

    Nobody gets that signal under `nohup`, in some containers and without a controlling terminal. Textual alone would then read the end of
    file in a busy loop, and write into a queue that nothing empties.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._file: Any = _Terminal(self._file)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]
        Thread(target=self._watch, name="terminal", daemon=True).start()

    def _watch(self) -> None:
        if not hung_up(self.fileno, self._key_thread):
            return
        self.exit_event.set()
        with contextlib.suppress(Exception):  # the app ends already
            self._app.call_from_thread(self._app.exit, HUNG_UP)


class _Terminal:
    """A text file whose writes are lost once nobody reads it: Textual's writer thread must go on emptying its queue."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._file.flush()

    def fileno(self) -> int:
        return int(self._file.fileno())


def hung_up(terminal: int, reader: Thread | None) -> bool:
    """Waits, without CPU time, until the other side of a terminal is closed (True) or its reading thread ends (False)."""
    poll = select.poll()
    poll.register(terminal, 0)  # POLLHUP and POLLERR are always reported
    while reader is not None and reader.is_alive():
        if poll.poll(_LOOK_MS):
            return True
    return False
