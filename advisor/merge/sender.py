"""Sends this node's records to the merging side, every ten seconds, from a thread of its own.

No answer, delay or error of the other side affects the run. Frames that it does not take in time are lost and
counted; frames in flight when a connection breaks are lost.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

import zmq

from rn50_advisor.advisor.merge.curve_keys import PROVES_WITHIN_MS, curve_keys, waiting_events
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, packed
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

PERIOD_S = 10.0
_STATE_EVERY_S = 60.0  # the state is larger than the steps; an urgent change does not wait
_RETRY_S = 5.0  # after a refusal; without an answer libzmq retries by itself
_KEPT_BYTES = 8 << 20
_LOOK_S = 0.5
_LAST_WORDS_S = 3.0
_ALL_HERE = "this node's own run file is complete: merge it afterwards"
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_OPTIONS = {
    zmq.IMMEDIATE: 1,  # queues nothing without a connection
    zmq.SNDHWM: 2,  # besides the kernel's buffer; the Sender keeps further frames itself
    zmq.CONNECT_TIMEOUT: 3_000,
    zmq.HANDSHAKE_IVL: PROVES_WITHIN_MS,
    zmq.RECONNECT_IVL: 1_000,
    zmq.RECONNECT_IVL_MAX: 30_000,
    zmq.HEARTBEAT_IVL: 10_000,
    zmq.HEARTBEAT_TIMEOUT: 30_000,  # after a pulled cable the kernel alone would retry for a quarter of an hour
}


class Sender:
    """Sends frames from its own thread. Call `start` and `finish` from the agent's thread; they do not raise.

    Each attempt to connect calls `token` again, since its file may appear after the job starts. It may raise AdvisorError.
    """

    def __init__(
        self,
        outbox: Outbox,
        address: tuple[str, int],
        token: Callable[[], bytes],
        *,
        post: Callable[[ProbeGap], object],
        period_s: float = PERIOD_S,
    ) -> None:
        self._outbox = outbox
        self._address = address
        self._token = token
        self._post = post
        self._period_s = period_s
        self._look_s = min(_LOOK_S, period_s)
        self._who = secrets.token_hex(16).encode()
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._lost = 0
        self._context = zmq.Context()
        self._socket: zmq.Socket[bytes] | None = None
        self._connected = self._failed = False
        self._retry_at_s = self._state_at_s = 0.0
        self._tell_from_s = 0.0  # nodes start in any order: until then a missing connection is not reported
        self._told: set[str] = set()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rn50-merge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, within_s: float) -> None:
        """Sends the remaining frames within the time; the rest is lost."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        try:
            due_s = self._tell_from_s = time.monotonic() + self._period_s
            while not self._ending.wait(self._look_s):
                now_s = time.monotonic()
                if now_s >= due_s or self._outbox.urgent:
                    self._gather(now_s)
                    due_s = max(due_s, now_s) + (self._period_s if now_s >= due_s else 0.0)
                self._send(now_s)
            self._end(time.monotonic() + _LAST_WORDS_S)
        except Exception as error:  # noqa: BLE001 - the wall of this thread: the run goes on without the other side
            self._tell("job", f"sending stopped: {type(error).__name__}: {error}")
        finally:
            self._context.destroy(linger=0)

    def _gather(self, now_s: float, *, last: bool = False) -> None:
        outbox = self._outbox
        state_due = outbox.changed and (now_s - self._state_at_s >= _STATE_EVERY_S or outbox.urgent or last)
        self._keep(b"steps", packed(outbox.steps_frame(time.perf_counter_ns())))
        if state_due:
            self._keep_state(now_s)

    def _keep_state(self, now_s: float) -> None:
        self._state_at_s = now_s
        self._keep(b"state", packed(self._outbox.state_frame(time.perf_counter_ns())))

    def _keep(self, kind: bytes, body: bytes) -> None:
        if len(body) > FRAME_BYTES_MAX:
            # the other side would cut us off
            reason = f"this node's {kind.decode()} frame is too large to send: {len(body)} bytes"
            self._tell(kind.decode(), reason)
            return
        self._waiting.append((kind, body))
        while sum(len(waiting) for _, waiting in self._waiting) > _KEPT_BYTES:
            self._waiting.popleft()
            self._lost += 1

    def _send(self, now_s: float, *, until_s: float = 0.0) -> None:
        """Sends queued frames as far as the other side takes them at once, or by `until_s`."""
        if self._socket is None and now_s < self._retry_at_s:
            return
        try:
            link = self._socket = self._socket or self._connect()
            if self._look(until_s):
                self._told.discard("job")
                self._keep_state(now_s)  # the listener may not know this node yet
            with contextlib.suppress(zmq.Again):
                while self._waiting and self._connected:
                    link.sndtimeo = _left_ms(until_s)
                    link.send_multipart((self._who, *self._waiting[0]))
                    self._waiting.popleft()
            why = "no connection" if self._failed or (until_s and not self._connected) else ""
        except (OSError, AdvisorError) as error:
            self._hang_up()
            self._retry_at_s = now_s + _RETRY_S
            why = str(getattr(error, "strerror", None) or error)
        if why and now_s >= self._tell_from_s:
            self._tell("job", f"the merge server at {self._address[0]}:{self._address[1]} was not reached: {why}")

    def _connect(self) -> zmq.Socket[bytes]:
        token, (host, port) = self._token(), self._address
        families = {family for family, *_ in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}
        keys, (theirs, _) = curve_keys(token, "sender"), curve_keys(token, "listener")
        link = self._context.socket(zmq.PUSH)
        link.curve_publickey, link.curve_secretkey = keys
        link.curve_serverkey = theirs
        # libzmq tries one address of a name, and most listen on 0.0.0.0
        for option, value in {**_OPTIONS, zmq.IPV6: socket.AF_INET not in families}.items():
            link.setsockopt(option, value)
        self._monitor = link.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED | _REFUSED
        )
        link.connect(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")
        return link

    def _look(self, until_s: float) -> bool:
        """True if a connection was made since the last call. Waits until `until_s` for an attempt's result. Raises AdvisorError."""
        anew = False
        while True:
            for event in waiting_events(self._monitor):
                if event & _REFUSED:
                    raise AdvisorError("it has another token, or is not a merge server")
                self._connected = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                self._failed = not self._connected
                anew = anew or self._connected
            left_ms = _left_ms(until_s)
            if self._connected or self._failed or not left_ms:
                return anew
            self._monitor.poll(left_ms)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close(0)
        self._socket, self._connected, self._failed = None, False, False

    def _end(self, until_s: float) -> None:
        now_s = time.monotonic()
        self._gather(now_s, last=True)
        if not self._connected:
            self._hang_up()  # its next attempt may be half a minute away
        self._retry_at_s = self._tell_from_s = 0.0
        self._send(now_s, until_s=until_s)
        if lost := self._lost + len(self._waiting):
            self._tell("frames", f"{lost} frames were not accepted in time")
        self._context.destroy(linger=_left_ms(until_s))

    def _tell(self, scope: str, reason: str) -> None:
        """Reports a gap once per scope; for the job, once per outage."""
        if scope not in self._told:
            self._post(ProbeGap("node.merge", scope, reason, _ALL_HERE))
        self._told.add(scope)


def _left_ms(until_s: float) -> int:
    return max(0, round(1000 * (until_s - time.monotonic())))
