"""A node's part in a live merge while it records: if requested, it either sends or receives, in a thread of its own.

Imports pyzmq only in the agent: the process that starts the job must not load it.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import secrets
import stat
import threading
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap

INSTALL = 'pip install "rn50-advisor[cluster]"'
_TOKEN_CHARACTERS_MIN = 16
ADDRESS_NAME = "merge.address"  # holds the address that the merging side listens on, if the system chose the port
_ENDS_WITHIN_S = 4.0

Report = Callable[[ProbeGap], object]


class NoToken(AdvisorError):
    """The token file does not exist; it may still appear."""


def has_pyzmq() -> bool:
    """True if pyzmq is installed. Does not import it."""
    return importlib.util.find_spec("zmq") is not None


def read_token(file: Path, *, make: bool) -> bytes:
    """Reads the token in `file`; with `make`, creates it if it is missing. Raises NoToken, UsageError or AdvisorError."""
    try:
        if make and not file.exists():
            _make(file)
        token = file.read_bytes().strip()
        shared = stat.S_IMODE(file.stat().st_mode) & 0o077
    except OSError as error:
        hint = "the listening side creates it: copy it from there, or name a file that both can read"
        missing = isinstance(error, FileNotFoundError) and file.absolute().parent.is_dir()
        raise (NoToken if missing else AdvisorError)(
            f"the token {file} cannot be read: {error.strerror or error}", "" if make else hint
        ) from error
    if len(token) < _TOKEN_CHARACTERS_MIN:
        raise UsageError(
            f"the token in {file} is shorter than {_TOKEN_CHARACTERS_MIN} characters", "openssl rand -hex 32"
        )
    if shared:
        raise UsageError(f"{file} can be read by other users", f"chmod 600 {file}")
    return token


def _make(file: Path) -> None:
    """Creates the file atomically: a sender that reads it meanwhile never finds half a token. Raises OSError."""
    new = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as text:
            text.write(secrets.token_hex(32) + "\n")
        try:
            file.hardlink_to(new)
        except FileExistsError:
            pass  # another process has created the file meanwhile, and its token counts
        except OSError:
            new.replace(file)  # a file system without links
    finally:
        new.unlink(missing_ok=True)


def parse_address(text: str) -> tuple[str, int]:
    """Parses `host:port`, `[::1]:port`, or `:port` for every interface. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port) < 1 << 16:
        raise UsageError(f"{text!r} is not an address", "give HOST:PORT")
    return host.strip("[]"), int(port)


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
