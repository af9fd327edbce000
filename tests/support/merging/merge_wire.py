"""Both ends of a live merge, with real sockets. Not a test."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, sent_recordings
from rn50_advisor.advisor.merge.node_frames import StepsFrame, packed
from rn50_advisor.advisor.merge.receiver import Receiver
from rn50_advisor.advisor.merge.sender import Sender
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from waiting import DEADLINE_S

TOKEN = b"0123456789abcdef0123456789abcdef"
OTHER = b"another token of somebody else's"
STEPS = packed(StepsFrame(1, {}, {}, {}))
LOCAL = "127.0.0.1"


class _Running:
    """One side in its thread, and the gaps it reported."""

    def __init__(self, serve: Callable[[threading.Event], None], gaps: list[ProbeGap]) -> None:
        self.gaps = gaps
        self.ending = threading.Event()
        self._thread = threading.Thread(target=serve, args=(self.ending,), daemon=True)
        self._thread.start()

    def finish(self) -> list[str]:
        """Ends it; returns the scopes of the gaps."""
        self.ending.set()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return [gap.scope for gap in self.gaps]


class Port(_Running):
    """A listening receiver."""

    def __init__(self, folder: Path, address: tuple[str, int] = (LOCAL, 0)) -> None:
        gaps: list[ProbeGap] = []
        self.folder = folder
        self.receiver = Receiver(address, TOKEN, folder, report=gaps.append)
        self.address = self.receiver.address
        super().__init__(self.receiver.serve, gaps)

    def dial(self) -> socket.socket:
        return socket.create_connection(self.address, DEADLINE_S)

    def received(self) -> list[Recording]:
        self.finish()
        return sent_recordings(self.folder / INBOX_NAME)


class Node(_Running):
    """A sender, and the writer of the run that it sends."""

    def __init__(self, address: tuple[str, int], token: Callable[[], bytes] = lambda: TOKEN, period_s: float = 0.01):
        gaps: list[ProbeGap] = []
        self._folder = tempfile.TemporaryDirectory()
        self.writer = RunWriter.create(Path(self._folder.name) / "run", meta={"name": "job", "argv": [], "host": "b"})
        self.writer.put_process(two_nodes({rank: plan(3) for rank in range(2)})[1].processes[0])
        self.writer.commit()
        self.sender = Sender(self.writer.folder, address, token, report=gaps.append, period_s=period_s)
        super().__init__(self.sender.serve, gaps)

    def finish(self) -> list[str]:
        found = super().finish()
        self.writer.close()
        return found
