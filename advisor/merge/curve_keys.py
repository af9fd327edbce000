"""Derives the CURVE keys of both sides of a live merge from their shared token, and reads the events of their sockets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Literal

import zmq
from zmq.utils.monitor import recv_monitor_message
from zmq.utils.z85 import encode

from rn50_advisor.advisor.model.errors import AdvisorError

HANDSHAKE_MS = 5_000


def curve_keys(token: bytes, side: Literal["listener", "sender"]) -> tuple[bytes, bytes]:
    """Returns the public and the secret key in Z85. Raises AdvisorError if libzmq was built without libsodium."""
    if not zmq.has("curve"):
        raise AdvisorError("this pyzmq cannot encrypt", "pip install --force-reinstall --only-binary pyzmq pyzmq")
    # Any 32 bytes are a valid secret key of Curve25519, and BLAKE2b derives 32 pseudorandom bytes from a secret token. `person` makes the
    # keys of the two sides independent. Anyone who knows the token can pose as either side: that is what a shared token means. Each
    # connection has short-term keys of its own, so a token that leaks later does not decrypt traffic recorded before.
    secret = encode(hashlib.blake2b(token, digest_size=32, person=side.encode()).digest())
    return zmq.curve_public(secret), secret


def waiting_events(monitor: zmq.Socket[bytes]) -> Iterator[int]:
    """Yields the events queued at a socket's monitor, without waiting for more."""
    while monitor.poll(0):
        yield recv_monitor_message(monitor)["event"]
