"""Sends what this node recorded to the side that merges, every ten seconds, from a thread of its own.

No answer, no delay and no error of the other side reaches the run.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable

from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, packed
from rn50_advisor.advisor.merge.node_link import GREETING, NONCE_BYTES, PROOF_BYTES, Seal, proof, same
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

PERIOD_S = 10.0
_STATE_EVERY_S = 60.0  # it is larger than the steps; what is urgent does not wait for it
_ANSWERS_WITHIN_S = 3.0
_DEAD_AFTER_S = 30.0  # a cable that was pulled: the kernel alone would try for a quarter of an hour
_RETRY_S = (1.0, 30.0)
_KEPT_FRAMES = 30  # of five minutes without a way to the other side
_LOOK_S = 0.5
_ALL_HERE = "this node's own run file has everything: merge it afterwards"


class Refused(OSError):
    """Whoever listens there is not the merging side of this token."""


class Sender:
    """`start` and `finish` belong to the agent's thread and raise nothing.

    `token` is asked for at each connection: its file may come later than the job. It may raise AdvisorError.
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
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=_KEPT_FRAMES)
        self._socket: socket.socket | None = None
        self._seal: Seal | None = None
        self._retry_s, self._retry_at_s = _RETRY_S[0], 0.0
        self._state_at_s = 0.0
        self._tell_from_s = 0.0  # nodes start in any order: until then nobody is missed
        self._trouble = ""
        self._too_large = False
        self.sent_bytes = 0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rn50-merge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self, within_s: float) -> None:
        """What is left goes now or never."""
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
            self._gather(time.monotonic(), last=True)
            self._retry_at_s = self._tell_from_s = 0.0
            self._send(time.monotonic())
        except Exception as error:  # noqa: BLE001 - the wall of this thread: the run goes on without the other side
            self._tell(f"sending broke off: {type(error).__name__}: {error}")
        finally:
            self._hang_up()

    def _gather(self, now_s: float, *, last: bool = False) -> None:
        outbox, now_ns = self._outbox, time.perf_counter_ns()
        state_due = outbox.changed and (now_s - self._state_at_s >= _STATE_EVERY_S or outbox.urgent or last)
        self._waiting.append(("steps", packed(outbox.steps_frame(now_ns))))
        if state_due:
            self._state_at_s = now_s
            self._waiting.append(("state", packed(outbox.state_frame(now_ns))))

    def _send(self, now_s: float) -> None:
        if self._socket is None and now_s < self._retry_at_s:
            return
        try:
            if self._socket is None:
                self._connect(now_s)
            while self._waiting:
                self._put(*self._waiting[0])
                self._waiting.popleft()
        except (OSError, AdvisorError) as error:
            self._hang_up()
            self._retry_at_s = now_s + self._retry_s
            self._retry_s = min(2 * self._retry_s, _RETRY_S[1])
            if now_s >= self._tell_from_s:
                why = getattr(error, "strerror", None) or error
                self._tell(f"the merging side at {self._address[0]}:{self._address[1]} was not reached: {why}")

    def _connect(self, now_s: float) -> None:
        token = self._token()
        link = self._socket = socket.create_connection(self._address, _ANSWERS_WITHIN_S)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * _DEAD_AFTER_S))
        greeting = _exactly(link, len(GREETING) + NONCE_BYTES)
        if not greeting.startswith(GREETING):
            raise Refused("it does not greet as an rn50-advisor does")
        theirs, ours = greeting[len(GREETING) :], secrets.token_bytes(NONCE_BYTES)
        link.sendall(ours + proof(token, b"sender", theirs, ours))
        if not same(_exactly(link, PROOF_BYTES), proof(token, b"merger", theirs, ours)):
            raise Refused("it does not know the token")
        self._seal = Seal(token, theirs, ours)
        self._put("who", self._who)
        self._put("state", packed(self._outbox.state_frame(time.perf_counter_ns())))
        self._retry_s, self._state_at_s = _RETRY_S[0], now_s
        self._trouble = ""

    def _put(self, kind: str, body: bytes) -> None:
        assert self._socket is not None and self._seal is not None
        if len(body) > FRAME_BYTES_MAX:
            self._tell_too_large(kind, len(body))
            return
        self._socket.sendall(self._seal.sealed(kind, body))
        self.sent_bytes += len(body)

    def _hang_up(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None

    def _tell(self, reason: str) -> None:
        """Once for each outage."""
        if not self._trouble:
            self._post(ProbeGap("node.merge", "job", reason, _ALL_HERE))
        self._trouble = reason

    def _tell_too_large(self, kind: str, size: int) -> None:
        """Once: the other side would hang up on it."""
        if not self._too_large:
            reason = f"what this node has to say of its {kind} is too large to be sent: {size} bytes"
            self._post(ProbeGap("node.merge", kind, reason, _ALL_HERE))
        self._too_large = True


def _exactly(link: socket.socket, size: int) -> bytes:
    """So many bytes. Raises Refused where the other side hangs up before."""
    data = b""
    while len(data) < size:
        more = link.recv(size - len(data))
        if not more:
            raise Refused("it hung up: another token, or too many at once")
        data += more
    return data
