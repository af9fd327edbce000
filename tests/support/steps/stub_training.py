"""A training loop on a fake clock with a real recorder. Not a test."""

from __future__ import annotations

import threading
import types
from pathlib import Path

from rn50_advisor.probes.rank.recorder import Recorder
from step_loops import Loop

torch = types.SimpleNamespace(is_grad_enabled=lambda: True, Tensor=type("Tensor", (), {}))


class Training(Loop):
    """A loop whose account is the recorder's, in the calling thread, where every mark may be noted."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.account.thread = threading.get_ident()
        self.account.ring.words = [0] * 32
        self.account.optimizers = 1
        self.recorder = Recorder(torch, str(folder))
        self.recorder.account = self.account

    def buffered(self) -> bool:
        account = self.account
        account.clocked, account.clocked_at, account.last_step_ns, account.fewest_marks = (
            False,
            account.step,
            1_000_000,
            6,
        )
        self.recorder.schedule.buffer_or_mark(account)
        on = self.recorder.buffer.on
        self.recorder.buffer.forget()
        return on
