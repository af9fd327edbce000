"""Settings of both sides of a live merge: the address to listen on, and the token that both must know."""

from __future__ import annotations

import importlib.util
import os
import secrets
import stat
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError

INSTALL = 'pip install "rn50-advisor[cluster]"'
_TOKEN_CHARACTERS_MIN = 16


class NoToken(AdvisorError):
    """The token file does not exist; it may still appear."""


def has_pyzmq() -> bool:
    """True if pyzmq is installed. Does not import it: the process that starts the job must not load it."""
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
