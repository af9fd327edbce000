"""What a recorder's watches write their facts on, in place of the rank's own. Not a test."""

from __future__ import annotations

from typing import Any


class Paper:
    """Stands in for the facts."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missed: list[str] = []
        self.written = 0

    def write(self) -> None:
        self.written += 1

    def miss(self, what: str) -> None:
        self.missed.append(what)
