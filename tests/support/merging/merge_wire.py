"""Both ends of a live merge, with real sockets. Not a test."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, sent_recordings
from rn50_advisor.advisor.merge.node_frames import VERSION, packed
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.merge.receiver import Receiver
from rn50_advisor.advisor.merge.sender import Sender
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from waiting import DEADLINE_S

TOKEN = b"0123456789abcdef0123456789abcdef"
OTHER = b"another token of somebody else's"
OTHER = b"another token of somebody else's"
STEPS = packed({"v": VERSION, "t": 1, "ranks": {}, "samples": {}, "positions": {}})
LOCAL = "127.0.0.1"


class Port:
    """A listening receiver, and the gaps it reported."""

    def __init__(self, folder: Path, address: tuple[str, int] = (LOCAL, 0)) -> None:
        self.folder = folder
        self.gaps: list[ProbeGap] = []
        self.receiver = Receiver(address, TOKEN, folder, post=self.gaps.append)
        self.address = self.receiver.address
        self.receiver.start()

    def dial(self) -> socket.socket:
        return socket.create_connection(self.address, DEADLINE_S)

    def close(self) -> list[Recording]:
        self.receiver.finish(DEADLINE_S)
        return sent_recordings(self.folder / INBOX_NAME)


def filled() -> Outbox:
    outbox = Outbox()
    _, own = two_nodes({rank: plan(3) for rank in range(2)})
    outbox.put_meta({f: getattr(own.meta, f) for f in ("name", "argv", "cwd", "host", "started_unix_s", "started_ns")})
    outbox.put_process(own.processes[0])
    return outbox


class Node:
    """A running sender, and the gaps it reported."""

    def __init__(self, address: tuple[str, int], token: Callable[[], bytes] = lambda: TOKEN, period_s: float = 0.01):
        self.gaps: list[ProbeGap] = []
        self.outbox = filled()
        self.sender = Sender(self.outbox, address, token, post=self.gaps.append, period_s=period_s)
        self.sender.start()

    def finish(self) -> list[str]:
        self.sender.finish(DEADLINE_S)
        assert not self.sender._thread.is_alive()
        return [gap.scope for gap in self.gaps]
