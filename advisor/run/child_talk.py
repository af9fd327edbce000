"""A process of ours that one of our processes starts and talks to: orders through one pipe, answers through another."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from typing import Any

from rn50_advisor.advisor.run.launch.own_processes import start_module

_LOOK_S = 0.02


class ChildTalk:
    """A child in its own session that exchanges JSON lines with us; neither pipe ever blocks us."""

    def __init__(self, module: str, *arguments: str, **first: Any) -> None:
        """Starts `main()` of one of our modules and posts `first`. Raises OSError where no process can be started."""
        child_in, orders = os.pipe()
        answers, child_out = os.pipe()
        try:
            descriptors = (child_in, child_out)
            self._process = start_module(module, [*map(str, descriptors), *arguments], descriptors=descriptors)
        except BaseException:
            os.close(orders)
            os.close(answers)
            raise
        finally:
            os.close(child_in)
            os.close(child_out)
        self.pid = self._process.pid
        self.status: int | None = None  # status from waitpid, once reaped
        self.answers: int | None = answers
        self._orders: int | None = orders
        self._unsent, self._unread = b"", b""
        os.set_blocking(orders, False)
        os.set_blocking(answers, False)
        self.post(**first)

    @property
    def unsent_bytes(self) -> int:
        return len(self._unsent)

    def post(self, **what: Any) -> None:
        self._unsent += json.dumps(what).encode() + b"\n"
        self.send()

    def send(self) -> None:
        while self._orders is not None and self._unsent:
            try:
                self._unsent = self._unsent[os.write(self._orders, self._unsent) :]
            except BlockingIOError:
                return
            except OSError:  # it is gone
                os.close(self._orders)
                self._orders = None

    def heard(self) -> list[dict[str, Any]]:
        while self.answers is not None:
            try:
                data = os.read(self.answers, 65536)
            except BlockingIOError:
                break
            except OSError:
                data = b""
            if not data:
                os.close(self.answers)
                self.answers = None
            self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        found = []
        for line in lines:
            with contextlib.suppress(ValueError):  # a faulty process may write anything
                found.append(json.loads(line))
        return [each for each in found if isinstance(each, dict)]

    def hang_up(self) -> None:
        """Says and hears nothing more: the process reads the end of its orders."""
        for descriptor in (self._orders, self.answers):
            if descriptor is not None:
                os.close(descriptor)
        self._orders = self.answers = None

    def reap(self) -> int | None:
        """Reaps the companion without waiting. Returns its wait status; None while it runs."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
                self._process.returncode = os.waitstatus_to_exitcode(status)  # Popen must not wait again
        return self.status

    def await_news(self, timeout_s: float) -> None:
        """Waits until it writes, reads or ends, by polling its pipes."""
        poller = select.poll()
        if self.answers is not None:
            poller.register(self.answers, select.POLLIN)
        if self._orders is not None and self._unsent:
            poller.register(self._orders, select.POLLOUT)
        # its pipe ends a moment before it does
        poller.poll(1000 * min(timeout_s, _LOOK_S if self.answers is None else timeout_s))

    def wait(self, deadline_s: float) -> bool:
        """True if the process ended in time; its answers are ignored."""
        while self.reap() is None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                return False
            self.send()
            self.heard()
            self.await_news(left_s)
        return True

    def resume(self) -> None:
        """Lets a process that somebody stopped go on, so that it can end: nothing else would wake it once we are gone."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._process.returncode = (
            -signal.SIGKILL
        )  # a process hung in a disk driver does not die now, and Popen must not wait
