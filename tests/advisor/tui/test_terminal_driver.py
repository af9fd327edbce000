"""A closed terminal is noticed by its hang-up, an open one by nothing; what is written to a closed one is lost without an error."""

from __future__ import annotations

import contextlib
import os
import pty
from threading import Event, Thread

import pytest

from rn50_advisor.advisor.tui.terminal_driver import _Terminal, hung_up


def test_a_closed_terminal_has_hung_up() -> None:
    screen, terminal = pty.openpty()
    reading = Event()
    reader = Thread(target=reading.wait)
    reader.start()
    answer: list[bool] = []
    watcher = Thread(target=lambda: answer.append(hung_up(terminal, reader)))
    watcher.start()
    os.write(screen, b"a key")  # input is no hang-up
    os.close(screen)
    watcher.join(10.0)
    reading.set()
    reader.join()
    os.close(terminal)
    assert answer == [True]


@pytest.mark.parametrize("reader", [None, Thread()])
def test_a_screen_that_is_closed_watches_no_longer(reader: Thread | None) -> None:
    screen, terminal = pty.openpty()
    assert not hung_up(terminal, reader)
    os.close(screen)
    os.close(terminal)


def test_writing_to_a_closed_terminal_is_no_error() -> None:
    screen, terminal = pty.openpty()
    os.close(screen)
    file = os.fdopen(terminal, "w", buffering=1)
    with pytest.raises(OSError):
        file.write("x\n")
    lost = _Terminal(file)
    lost.write("x\n")
    lost.flush()
    assert lost.fileno() == terminal
    with contextlib.suppress(OSError):
        file.close()
