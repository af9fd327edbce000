"""How two agents know each other and tell whole frames from anything else: a shared token that never crosses the wire, a MAC a frame.

Nothing is encrypted: what is sent are step times, host readings and facts with secrets masked. Whoever lacks the token can neither send
frames, nor change them on their way, nor pass for the merging side.

Not torch's TCPStore: the agent has no torch, and would have to import it for this alone on every node; and a store authenticates nobody
and keeps whatever it is sent, so that who floods its port fills the memory that the job needs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
import struct
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError, UsageError

GREETING = b"RN50MERGE1\n"
NONCE_BYTES = 32
PROOF_BYTES = 32
HEADER = struct.Struct("!IB16s")  # body's length, kind, MAC
KINDS = {0: "who", 1: "state", 2: "steps"}
KIND_CODES = {name: code for code, name in KINDS.items()}
_TOKEN_CHARACTERS_MIN = 16


class NoToken(AdvisorError):
    """The file is not there; it may be yet to come."""


def proof(token: bytes, side: bytes, server_nonce: bytes, client_nonce: bytes) -> bytes:
    """That somebody who knows the token has seen both nonces; `side` keeps one side's answer from being played back to it."""
    return hmac.digest(token, side + server_nonce + client_nonce, hashlib.sha256)


class Seal:
    """MACs of one connection's frames in their order: a frame left out, repeated or changed no longer fits."""

    def __init__(self, token: bytes, server_nonce: bytes, client_nonce: bytes) -> None:
        self._key = proof(token, b"frames", server_nonce, client_nonce)
        self._n = 0

    def mac(self, code: int, body: bytes) -> bytes:
        self._n += 1
        return hmac.digest(self._key, struct.pack("!QB", self._n, code) + body, hashlib.sha256)[:16]

    def sealed(self, kind: str, body: bytes) -> bytes:
        code = KIND_CODES[kind]
        return HEADER.pack(len(body), code, self.mac(code, body)) + body

    def fits(self, code: int, body: bytes, mac: bytes) -> bool:
        return hmac.compare_digest(self.mac(code, body), mac)


def same(a: bytes, b: bytes) -> bool:
    return hmac.compare_digest(a, b)


def read_token(file: Path, *, make: bool) -> bytes:
    """The token in `file`; with `make` a new one where there is none. Raises NoToken, UsageError or AdvisorError."""
    try:
        if make and not file.exists():
            _make(file)
        token = file.read_bytes().strip()
        shared = stat.S_IMODE(file.stat().st_mode) & 0o077
    except OSError as error:
        hint = "the side that listens makes it: copy it from there, or name a file that both see"
        missing = isinstance(error, FileNotFoundError) and file.absolute().parent.is_dir()
        raise (NoToken if missing else AdvisorError)(
            f"the token {file} cannot be read: {error.strerror or error}", "" if make else hint
        ) from error
    if len(token) < _TOKEN_CHARACTERS_MIN:
        raise UsageError(
            f"the token in {file} is shorter than {_TOKEN_CHARACTERS_MIN} characters", "openssl rand -hex 32"
        )
    if shared:
        raise UsageError(f"{file} can be read by others than you", f"chmod 600 {file}")
    return token


def _make(file: Path) -> None:
    """Whole or not at all: a sender that reads it meanwhile finds none, and not half of one. Raises OSError."""
    new = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w") as text:
            text.write(secrets.token_hex(32) + "\n")
        try:
            file.hardlink_to(new)
        except FileExistsError:
            pass  # another has made one meanwhile: that one it is
        except OSError:
            new.replace(file)  # a file system without links
    finally:
        new.unlink(missing_ok=True)


def parse_address(text: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port`, or `:port` for every interface. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or not 0 <= int(port) < 1 << 16:
        raise UsageError(f"{text!r} is no address", "give HOST:PORT")
    return host.strip("[]"), int(port)
