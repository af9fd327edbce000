"""Sends this node's run to the merging side, every ten seconds, from a thread of its own.

No answer, delay or error of the other side affects the run. While it takes nothing, nothing is queued: the run file keeps everything, and
the next frame goes on where the last one ended. Only frames in flight when a connection breaks are lost.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import zmq

from rn50_advisor.advisor.merge.curve_keys import HANDSHAKE_MS, curve_keys, waiting_events
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, StateFrame, StepsFrame, packed
from rn50_advisor.advisor.merge.run_tail import RunTail
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

PERIOD_S = 10.0
_STATE_EVERY_S = 60.0  # the state is larger than the steps; an event does not wait
_POLL_S = 0.5
_LAST_FRAMES_S = 3.0
_HINT = "this node's own run file is complete: merge it afterwards"
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_OPTIONS = {
    zmq.IMMEDIATE: 1,  # queues nothing without a connection
    zmq.SNDHWM: 2,  # frames, besides the kernel's buffer
    zmq.CONNECT_TIMEOUT: 3_000,
    zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
    zmq.RECONNECT_IVL: 1_000,
    zmq.RECONNECT_IVL_MAX: 30_000,
    zmq.HEARTBEAT_IVL: 10_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,  # after a pulled cable the kernel alone would retry for a quarter of an hour
}


class Sender:
    """Sends the run in `folder`. Each new socket calls `token` again, since its file may appear after the job starts."""

    def __init__(
        self,
        folder: Path,
        address: tuple[str, int],
        token: Callable[[], bytes],
        *,
        report: Callable[[ProbeGap], object],
        period_s: float = PERIOD_S,
    ) -> None:
        self._folder = folder
        self._address = address
        self._token = token
        self._report = report
        self._period_s = period_s
        self._who = secrets.token_hex(16).encode()
        self._context = zmq.Context()
        self._link: zmq.Socket[bytes] | None = None
        self._connected = False
        self._error = ""  # of the last attempt
        self._reported: set[str] = set()

    def serve(self, ending: threading.Event) -> None:
        """Sends until `ending` is set, and then the last frames. Raises sqlite3.Error if the run cannot be read."""
        try:
            with contextlib.closing(RunTail(self._folder)) as run:
                self._send_until(ending, run)
                self._send_last(run, time.monotonic() + _LAST_FRAMES_S)
        finally:
            self._context.destroy(linger=500)

    def _send_until(self, ending: threading.Event, run: RunTail) -> None:
        due_s = time.monotonic() + self._period_s
        state_due_s = 0.0
        self._connect()
        while not ending.wait(min(_POLL_S, self._period_s)):
            now_s = time.monotonic()
            due, news, connected = now_s >= due_s, run.has_news(), self._check_link()
            if due or news or run.has_more_rows:
                self._send("steps", run.steps_frame)
            if connected or news:  # a listener may not know this node yet
                state_due_s = now_s
            if now_s >= state_due_s and self._send("state", run.state_frame):
                state_due_s = now_s + _STATE_EVERY_S
            if due:
                due_s = now_s + self._period_s
                if self._error:  # not reported before: nodes start in any order
                    self._report_error()
                if self._link is None:
                    self._connect()

    def _send_last(self, run: RunTail, until_s: float) -> None:
        self._check_link()  # the listener may have left since
        if not self._connected:
            self._close_link()  # its next attempt may be half a minute away
            self._connect()
            self._check_link(until_s)
        if not self._connected:
            self._report_error()
            return
        accepted = self._send("steps", run.steps_frame, until_s)
        while accepted and run.has_more_rows:
            accepted = self._send("steps", run.steps_frame, until_s)
        if not (accepted and self._send("state", run.state_frame, until_s)):
            self._report_once("frames", "the last frames were not accepted in time")

    def _send(self, kind: str, make: Callable[[int], StepsFrame | StateFrame], until_s: float = 0.0) -> bool:
        """Makes a frame and sends it; False if the other side takes none at once, or by `until_s`."""
        if self._link is None or not self._link.poll(_left_ms(until_s), zmq.POLLOUT):
            return False
        body = packed(make(time.perf_counter_ns()))
        if len(body) > FRAME_BYTES_MAX:  # the other side would cut us off
            self._report_once(kind, f"this node's {kind} frame is too large to send: {len(body)} bytes")
        else:
            with contextlib.suppress(zmq.Again):  # the connection broke while the frame was made
                self._link.send_multipart((self._who, kind.encode(), body), zmq.NOBLOCK)
        return True

    def _connect(self) -> None:
        host, port = self._address
        try:
            token = self._token()
            own, (server, _) = curve_keys(token, "sender"), curve_keys(token, "listener")
            families = {family for family, *_ in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        except (OSError, AdvisorError) as error:
            self._error = str(getattr(error, "strerror", None) or error)
            return
        link = self._link = self._context.socket(zmq.PUSH)
        link.curve_publickey, link.curve_secretkey = own
        link.curve_serverkey = server
        # libzmq tries one address of a name, and most listen on 0.0.0.0
        for option, value in {**_OPTIONS, zmq.IPV6: socket.AF_INET not in families}.items():
            link.setsockopt(option, value)
        self._monitor = link.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | _REFUSED
        )
        link.connect(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")

    def _check_link(self, until_s: float = 0.0) -> bool:
        """Reads what happened to the connection, if anything does by `until_s`; True if there is a new one."""
        if self._link is None or not self._monitor.poll(_left_ms(until_s)):
            return False
        events = list(waiting_events(self._monitor))
        self._connected = events[-1] == zmq.EVENT_HANDSHAKE_SUCCEEDED
        self._error = "" if self._connected else "no connection"
        if any(event & _REFUSED for event in events):
            self._close_link()  # libzmq does not always retry, and the token may have changed
            self._error = "it has another token, or is not a merge server"
        elif self._connected:
            self._reported.discard("job")
        return self._connected

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.disable_monitor()
            self._monitor.close(0)
            self._link.close(0)
        self._link, self._connected = None, False

    def _report_error(self) -> None:
        host, port = self._address
        self._report_once("job", f"the merge server at {host}:{port} was not reached: {self._error or 'no answer'}")

    def _report_once(self, scope: str, reason: str) -> None:
        """Reports a gap once per scope; for the job, once per outage."""
        if scope not in self._reported:
            self._report(ProbeGap("node.merge", scope, reason, _HINT))
        self._reported.add(scope)


def _left_ms(until_s: float) -> int:
    return max(0, round(1000 * (until_s - time.monotonic())))
