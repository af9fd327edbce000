"""The merging side: listens where the user asked for it, takes frames from nodes that know the token, and keeps them in the inbox.

Anybody can connect to the port. A connection that does not prove the token within seconds is cut off. Handshakes per
second, frame size and bytes per second are bounded, so that a flood costs the node almost nothing and the run nothing.
Only a holder of the token could fill memory, by a message with endless parts: libzmq does not bound their number.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import zmq
from zmq.utils.z85 import decode

from rn50_advisor.advisor.merge.curve_keys import HANDSHAKE_MS, curve_keys, waiting_events
from rn50_advisor.advisor.merge.inbox import Inbox
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, NotAFrame, StateFrame, StepsFrame, unpacked
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

_HANDSHAKE_S = 0.05  # per connection, so that a thousand nodes connect within a minute
_HANDSHAKES_AHEAD_S = 10.0  # two hundred connections at once
_CONNECTIONS_MAX = 4096
_BYTES_PER_S = 8 << 20  # four times what eight thousand ranks send
_FRAME_COST_BYTES = 8192  # at least, for any frame
_NAME_BYTES_MAX = 64
_POLL_MS = 200
_COMMIT_S = 1.0
_LAST_FRAMES_S = 2.0  # nodes of one job end together, but not at the same moment
_KINDS: Mapping[bytes, type[StateFrame | StepsFrame]] = {b"state": StateFrame, b"steps": StepsFrame}
# <asm-generic/socket.h> and <linux/filter.h>: a program of one instruction, "keep 0 bytes"
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_DROP_ALL = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))
_OPTIONS = {
    zmq.IPV6: 1,
    zmq.CURVE_SERVER: 1,
    zmq.MAXMSGSIZE: FRAME_BYTES_MAX + 64,  # more than encryption adds
    zmq.RCVHWM: 2,  # unread frames of a node; with more, it has to wait
    zmq.HANDSHAKE_IVL: HANDSHAKE_MS,
    zmq.HEARTBEAT_IVL: 30_000,
    zmq.HEARTBEAT_TIMEOUT: 120_000,  # senders send every ten seconds
}


class Receiver:
    """Receives frames in a thread of its own. Raises AdvisorError if it cannot listen."""

    def __init__(
        self, address: tuple[str, int], token: bytes, folder: Path, *, report: Callable[[ProbeGap], object]
    ) -> None:
        self._keys, self._sender_key = curve_keys(token, "listener"), decode(curve_keys(token, "sender")[0])
        self._folder = folder
        self._report = report
        self._listener = _listen(address)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self._accepted = self._authenticated = self._disconnected = self._invalid = self.frames = 0
        self._handshakes_until_s = 0.0
        self._connections_max = min(_CONNECTIONS_MAX, max(16, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._accepting = True

    @property
    def refused(self) -> int:
        return self._accepted - self._authenticated + self._invalid

    def serve(self, ending: threading.Event) -> None:
        """Receives until `ending` is set and the nodes have left. Raises sqlite3.Error or OSError if nothing can be written."""
        context = zmq.Context()
        try:
            with contextlib.closing(Inbox(self._folder)) as inbox:
                self._receive(context, inbox, ending)
        finally:
            context.destroy(linger=0)
            self._listener.close()
        if self.refused:
            reason = f"{self.refused} connections to the merge port were refused: no token, or not our protocol"
            self._report(ProbeGap("node.merge", "port", reason))

    def _receive(self, context: zmq.Context[zmq.Socket[bytes]], inbox: Inbox, ending: threading.Event) -> None:
        zap = context.socket(zmq.REP)
        zap.bind("inproc://zeromq.zap.01")  # libzmq asks here whether to admit a connection
        frames = context.socket(zmq.PULL)
        frames.curve_publickey, frames.curve_secretkey = self._keys
        for option, value in _OPTIONS.items():
            frames.setsockopt(option, value)
        frames.setsockopt(zmq.USE_FD, os.dup(self._listener.fileno()))
        monitor = frames.get_monitor_socket(zmq.EVENT_ACCEPTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        frames.bind(f"tcp://127.0.0.1:{self.address[1]}")
        poller = zmq.Poller()
        for waited in (zap, frames, monitor):
            poller.register(waited, zmq.POLLIN)
        commit_s, end_s = time.monotonic() + _COMMIT_S, float("inf")
        while (now_s := time.monotonic()) < end_s:
            self._limit_connections(now_s)
            ready = dict(poller.poll(_POLL_MS))
            if zap in ready:
                self._answer_zap(zap)
            self._count(monitor, now_s)
            if frames in ready:
                self._store(frames.recv_multipart(), inbox)
            elif ending.is_set() and self._accepted == self._disconnected:
                break
            if now_s >= commit_s:
                inbox.commit()
                commit_s = now_s + _COMMIT_S
            if ending.is_set():
                end_s = min(end_s, now_s + _LAST_FRAMES_S)

    def _limit_connections(self, now_s: float) -> None:
        """Drops new connections in the kernel while they exceed the bounds, since libzmq accepts all of them. The other side retries."""
        wanted = (
            self._handshakes_until_s < now_s + _HANDSHAKES_AHEAD_S
            and self._accepted - self._disconnected < self._connections_max
        )
        if wanted and not self._accepting:
            self._listener.setsockopt(socket.SOL_SOCKET, _DETACH_FILTER, 0)
        elif self._accepting and not wanted:
            program = struct.pack("HP", 1, ctypes.addressof(_DROP_ALL))
            self._listener.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)
        self._accepting = wanted

    def _answer_zap(self, zap: zmq.Socket[bytes]) -> None:
        """Answers one request of ZAP 1.0 (RFC 27); every handshake makes one."""
        version, request, _, _, _, mechanism, *keys = zap.recv_multipart()
        code = b"200" if (mechanism, keys) == (b"CURVE", [self._sender_key]) else b"400"
        zap.send_multipart([version, request, code, b"", b"", b""])

    def _count(self, monitor: zmq.Socket[bytes], now_s: float) -> None:
        for event in waiting_events(monitor):
            if event == zmq.EVENT_ACCEPTED:
                self._accepted += 1
                self._handshakes_until_s = max(now_s, self._handshakes_until_s) + _HANDSHAKE_S
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._authenticated += 1
            else:
                self._disconnected += 1

    def _store(self, parts: list[bytes], inbox: Inbox) -> None:
        try:
            who, kind, body = parts
            if not 0 < len(who) <= _NAME_BYTES_MAX:
                raise NotAFrame("no name")
            unpacked(body, _KINDS[kind])
        except (KeyError, ValueError):  # NotAFrame is one
            self._invalid += 1
        else:
            inbox.put(who.hex(), kind.decode(), body)
            self.frames += 1
        # Meanwhile the other nodes wait, each in its own queue, and are served in turn.
        time.sleep(max(_FRAME_COST_BYTES, sum(map(len, parts))) / _BYTES_PER_S)


def _listen(address: tuple[str, int]) -> socket.socket:
    host, port = address
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise AdvisorError(
            f"cannot listen on {host or '*'}:{port}: {error.strerror or error}", "--merge-listen with another port"
        ) from error
    listener.setblocking(False)
    return listener
