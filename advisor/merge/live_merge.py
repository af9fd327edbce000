"""A node's part in a live merge while it records: if requested, it either sends or receives, in a thread of its own."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.merge.node_link import INSTALL, parse_address, read_token
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap

ADDRESS_NAME = "merge.address"  # holds the address that the merging side listens on, if the system chose the port
_ENDS_WITHIN_S = 4.0

Report = Callable[[ProbeGap], object]


class Part:
    """One side of a live merge. `start` and `finish` do not raise: a merge that fails becomes a gap in the run."""

    def __init__(self, *, listen: str, to: str, token_file: str, period_s: float) -> None:
        self._listen, self._to, self._token_file, self._period_s = listen, to, Path(token_file), period_s
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, folder: Path, report: Report) -> None:
        """Starts the thread, if there is something to do. It calls `report`. `folder`: the run, whose file exists."""
        if not self._listen and not self._to:
            return
        try:
            serve = self._receiver(folder, report) if self._listen else self._sender(folder, report)
        except ImportError as error:
            report(ProbeGap("node.merge", "job", f"no live merge: {error}", INSTALL))
        except (AdvisorError, OSError) as error:
            report(ProbeGap("node.merge", "job", f"no live merge: {error}", getattr(error, "hint", "")))
        else:
            self._thread = threading.Thread(target=self._run, args=(serve, report), name="rn50-merge", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Lets the thread send or receive the last frames; a sender reads them from what the run's writer has committed."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_ENDS_WITHIN_S)

    def _run(self, serve: Callable[[threading.Event], None], report: Report) -> None:
        try:
            serve(self._ending)
        except Exception as error:  # noqa: BLE001 - the wall of this thread: the run goes on without the others
            reason = f"the live merge stopped: {type(error).__name__}: {error}"
            report(ProbeGap("node.merge", "job", reason, "merge the nodes' own run files afterwards"))

    def _receiver(self, folder: Path, report: Report) -> Callable[[threading.Event], None]:
        from rn50_advisor.advisor.merge.receiver import Receiver  # noqa: PLC0415 - pyzmq, which no other run needs

        receiver = Receiver(parse_address(self._listen), read_token(self._token_file, make=True), folder, report=report)
        (folder / ADDRESS_NAME).write_text("{}:{}\n".format(*receiver.address))
        return receiver.serve

    def _sender(self, folder: Path, report: Report) -> Callable[[threading.Event], None]:
        from rn50_advisor.advisor.merge.sender import Sender  # noqa: PLC0415

        # the listening side may create the token later
        token = functools.partial(read_token, self._token_file, make=False)
        return Sender(folder, parse_address(self._to), token, report=report, period_s=self._period_s).serve
