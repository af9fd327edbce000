"""Puts a deadline on calls that may never return: a hung mount or a wedged driver blocks its caller beyond any signal but SIGKILL."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from types import FrameType
from typing import NoReturn, TypeVar

import psutil

from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.triage.found_checks import Item

# A process that is asked to end ends its own children first; one that the kernel does not let go is left to it.
_ENDS_S = 3.0
_ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DAY_S = 86_400.0  # no clock of the system takes infinity
_HINT = "a device does not respond, or is far slower than usual: see dmesg"

T = TypeVar("T")


def within(seconds: float, ask: Callable[[], T]) -> T | None:
    """The answer; None where none comes in time. The thread that asks is left behind then, and goes with the process."""
    answers: queue.SimpleQueue[tuple[T | None, Exception | None]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((ask(), None))
        except Exception as error:  # noqa: BLE001 - raised where the answer was asked for
            answers.put((None, error))

    threading.Thread(target=answer, daemon=True).start()
    try:
        given, error = answers.get(timeout=seconds)
    except queue.Empty:
        return None
    if error is not None:
        raise error
    return given


def as_they_come(make: Callable[[], Iterable[Item]], seconds: float, late: Callable[[], Item]) -> Iterator[Item]:
    """Items from a thread, one by one; `late` replaces items that miss the deadline. The thread is abandoned as above."""
    made: queue.SimpleQueue[tuple[Item | None, Exception | None]] = queue.SimpleQueue()

    def work() -> None:
        try:
            for item in make():
                made.put((item, None))
            made.put((None, None))
        except Exception as error:  # noqa: BLE001 - raised where the items are wanted
            made.put((None, error))

    threading.Thread(target=work, daemon=True).start()
    until = time.monotonic() + min(seconds, _DAY_S)
    while True:
        try:
            item, error = made.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            yield late()
            return
        if error is not None:
            raise error
        if item is None:
            return
        yield item


def apart(make: Callable[[], Iterable[Item]], title: str, *, seconds: float) -> list[Item]:
    """Items that a fork of this process makes before the deadline, and a gap if there was more to come."""
    receive, send = multiprocessing.Pipe(duplex=False)
    try:
        pid = os.fork()
    except OSError as error:
        return [TriageGap(title, f"no process could be started for it: {error.strerror}")]
    if not pid:
        receive.close()
        _make(make, title, send)
    send.close()
    items: list[Item] = []
    until, whole = time.monotonic() + min(seconds, _DAY_S), False
    try:
        while receive.poll(max(0.0, until - time.monotonic())):
            item = receive.recv()
            if item is None:
                whole = True
                return items
            items.append(item)
        return [*items, TriageGap(title, f"not finished after {seconds:.0f} s", _HINT)]
    except EOFError:
        return [*items, TriageGap(title, "its process exited early", "see dmesg for what ended it")]
    finally:
        receive.close()
        _end(pid, asked=not whole)


def _make(make: Callable[[], Iterable[Item]], title: str, send: Connection) -> NoReturn:
    """Nothing of what our parent does at its end may happen here, too: its scratch folder is still in use."""
    code = 1
    try:
        for number in _ENDINGS:
            signal.signal(number, _leave)
        for item in make():
            send.send(item)
        send.send(None)
        code = 0
    except Exception as error:  # noqa: BLE001 - a bug of ours, which nobody shall look for in the kernel's log
        with contextlib.suppress(OSError):  # our parent has gone
            send.send(TriageGap(title, f"aborted: {type(error).__name__}: {error}", "please report this"))
            send.send(None)
    finally:
        os._exit(code)


def _leave(number: int, frame: FrameType | None) -> None:
    """Once: Ctrl-C comes to both of us, and our parent asks us to end while we do."""
    for other in _ENDINGS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _end(pid: int, *, asked: bool) -> None:
    for number in (signal.SIGTERM if asked else None, signal.SIGKILL):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
            process = psutil.Process(pid)
            if number is not None:
                process.send_signal(number)
            process.wait(_ENDS_S)
            return
