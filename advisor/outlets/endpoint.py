"""An HTTP address of a user's, which may hold credentials: what may be shown of it, and what may not be seen in a list of processes."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from rn50_advisor.advisor.model.errors import UsageError

# Fields of /proc/PID/stat (proc_pid_stat(5)), counted after the name of the command.
_ARG_START, _ARG_END = 48 - 3, 49 - 3


@dataclass(frozen=True, slots=True)
class Endpoint:
    """`url` is without user and password, `login` has them; a query is kept in `url`, since it belongs to the address."""

    url: str = field(repr=False)
    login: tuple[str, str] | None = field(repr=False)
    place: str  # scheme, host, port and path: what may be shown
    secrets: tuple[str, ...] = field(repr=False)  # parts of the address as it was given

    @property
    def host(self) -> str:
        """Scheme, host and port: what may be shown of an address whose path is a secret."""
        scheme, netloc, *_ = urlsplit(self.place)
        return f"{scheme}://{netloc}"


def parse_endpoint(text: str, option: str, *, path: str = "") -> Endpoint:
    """`path` is appended where the address does not end with it. Raises UsageError, which does not quote the address."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{option}: this is no address", f"{option} http://HOST:PORT") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{option}: this is no http:// or https:// address", f"{option} http://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    netloc = host if port is None else f"{host}:{port}"
    whole = parts.path if not path or parts.path.rstrip("/").endswith(path) else parts.path.rstrip("/") + path
    login = None if parts.username is None else (unquote(parts.username), unquote(parts.password or ""))
    user = parts.netloc.rpartition("@")[0]
    return Endpoint(
        url=urlunsplit((parts.scheme, netloc, whole, parts.query, "")),
        login=login,
        place=urlunsplit((parts.scheme, netloc, whole, "", "")),
        secrets=tuple(part for part in (user, parts.query, parts.fragment) if part),
    )


def hide_arguments(words: Iterable[str]) -> None:
    """Overwrites these words in this process's command line, as `ps` and /proc show it. Where that fails they stay visible."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
        if not 0 < start < end:
            return
        shown = ctypes.string_at(start, end - start)
        for word in {os.fsencode(word) for word in words if word}:
            at = shown.find(word)
            while at >= 0:
                ctypes.memset(start + at, ord("x"), len(word))
                at = shown.find(word, at + len(word))
