"""A node's part in a live merge while it records: if requested, it either sends or receives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rn50_advisor.advisor.merge.node_link import INSTALL, parse_address, read_token
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.store.run_writer import RunWriter

if TYPE_CHECKING:
    from rn50_advisor.advisor.merge.receiver import Receiver
    from rn50_advisor.advisor.merge.sender import Sender

ADDRESS_NAME = "merge.address"  # holds the address that the merging side listens on, if the system chose the port
_ENDS_WITHIN_S = 4.0


class Part:
    """One side of a live merge. `start` and `finish` do not raise: a merge that fails becomes a gap in the run."""

    def __init__(self, *, listen: str, to: str, token_file: str, period_s: float) -> None:
        self._listen, self._to, self._token_file, self._period_s = listen, to, token_file, period_s
        self._sender: Sender | None = None
        self._receiver: Receiver | None = None

    def start(self, writer: RunWriter, meta: Mapping[str, Any], post: Callable[[ProbeGap], object]) -> None:
        if not self._listen and not self._to:
            return
        try:
            if self._listen:
                self._receive(writer.folder, read_token(Path(self._token_file), make=True), post)
            else:
                self._send(writer, meta, post)
        except ImportError as error:
            post(ProbeGap("node.merge", "job", f"no live merge: {error}", INSTALL))
        except (AdvisorError, OSError, RuntimeError) as error:
            post(ProbeGap("node.merge", "job", f"no live merge: {error}", getattr(error, "hint", "")))

    def _receive(self, folder: Path, token: bytes, post: Callable[[ProbeGap], object]) -> None:
        from rn50_advisor.advisor.merge.receiver import Receiver  # noqa: PLC0415 - pyzmq, which no other run needs

        self._receiver = Receiver(parse_address(self._listen), token, folder, post=post)
        (folder / ADDRESS_NAME).write_text("{}:{}\n".format(*self._receiver.address))
        self._receiver.start()

    def _send(self, writer: RunWriter, meta: Mapping[str, Any], post: Callable[[ProbeGap], object]) -> None:
        from rn50_advisor.advisor.merge.forwarding import ForwardingWriter  # noqa: PLC0415
        from rn50_advisor.advisor.merge.outbox import Outbox  # noqa: PLC0415
        from rn50_advisor.advisor.merge.sender import Sender  # noqa: PLC0415

        assert isinstance(writer, ForwardingWriter)
        outbox = Outbox()
        outbox.put_meta(meta)
        # the listening side may create the token later
        token = functools.partial(read_token, Path(self._token_file), make=False)
        self._sender = Sender(outbox, parse_address(self._to), token, post=post, period_s=self._period_s)
        self._sender.start()
        writer.outbox = outbox

    def finish(self) -> None:
        for side in (self._sender, self._receiver):
            if side is not None:
                side.finish(_ENDS_WITHIN_S)


def writer_type(to: str) -> type[RunWriter]:
    """Returns the plain RunWriter unless records are sent."""
    if not to:
        return RunWriter
    from rn50_advisor.advisor.merge.forwarding import ForwardingWriter  # noqa: PLC0415

    return ForwardingWriter
