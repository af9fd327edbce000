"""Where checkpoints are written, how often, and what of an fsync belongs to one."""

from __future__ import annotations

from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..facts import process_facts
from ..step_phases import CHECKPOINT

if TYPE_CHECKING:
    from ..step_account import Account

# An fsync so soon after torch.save belongs to the checkpoint.
_SITES_MAX = 64  # code that is made anew for each save has ever new lines
_TAIL_NS = 2_000_000_000


class Saves:
    def __init__(self) -> None:
        self._sites: dict[tuple[str, int], dict[str, Any]] = {}
        self._ended_at = 0

    def facts(self) -> list[dict[str, Any]]:
        return list(self._sites.values())

    def begin(self, account: Account | None) -> tuple[Account, int, int, tuple[str, int]] | None:
        if account is None or account.ring is None or account.phase == CHECKPOINT:  # one inside another is part of it
            return None
        site = process_facts.call_site()
        return account, account.checkpoint_begin(), perf_counter_ns(), site

    def end(self, token: tuple[Account, int, int, tuple[str, int]]) -> bool:
        """Returns whether it was the first at its line."""
        account, phase, began, site = token
        entry = self._sites.get(site)
        if entry is None and len(self._sites) >= _SITES_MAX:
            account.checkpoint_end(phase, began, -1)
            self._ended_at = perf_counter_ns()
            return False
        if entry is None:
            entry = self._sites[site] = {"id": len(self._sites), "file": site[0], "line": site[1], "count": 0}
            # a library's; what it does next writes the checkpoint, too
            entry["caller"] = process_facts.calling_function()
        entry["count"] += 1
        account.checkpoint_end(phase, began, entry["id"])
        self._ended_at = perf_counter_ns()
        return bool(entry["count"] == 1)

    def fsync_begin(self, account: Account | None) -> tuple[Account, int, int] | None:
        if account is None or account.ring is None or perf_counter_ns() - self._ended_at > _TAIL_NS:
            return None
        return account, account.checkpoint_begin(), perf_counter_ns()

    def fsync_end(self, token: tuple[Account, int, int]) -> None:
        account, phase, began = token
        account.checkpoint_end(phase, began, -1)
        self._ended_at = perf_counter_ns()
