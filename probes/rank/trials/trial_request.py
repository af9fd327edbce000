"""The request to the ranks to try changes: a file in the ring folder, written before the job starts.

It holds `changes`, made from the start, and `live` or null: variants, each a list of changes, among which all ranks switch at the same
steps. A change is an object; its `kind` is one of `call`, `removal`, `setup`, `model`, `context`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..side_files import TRIAL_REQUEST

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.trial_documents import TrialFacts

NEVER = 1 << 62
WHOLE_REQUEST = -1  # index of a refusal that concerns all changes
_SWITCHES_MAX = 512  # kept; all facts are written at each
_REASON_CHARS_MAX = 300

Change = dict[str, Any]


class TrialRequest:
    """`changes` and those of `variants`: pairs of index and change. The indices count all changes of the request."""

    def __init__(self, document: Any) -> None:
        """Raises ValueError, TypeError or KeyError if the document is no request."""
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        live = document.get("live") or {"variants": [], "from_step": NEVER, "block_steps": 1, "order": [0]}
        lists = [_changes(each) for each in (document.get("changes") or [], *live["variants"])]
        self.count = 0
        numbered: list[list[tuple[int, Change]]] = []
        for each in lists:
            numbered.append(list(enumerate(each, self.count)))
            self.count += len(each)
        self.changes, *self.variants = numbered
        self.from_step, self.block_steps = int(live["from_step"]), int(live["block_steps"])
        self.order = [int(each) for each in live["order"]]
        if not self.order or self.block_steps < 1 or self.from_step < 1:
            raise ValueError("its blocks are empty")
        if self.variants and not all(0 <= each < len(self.variants) for each in self.order):
            raise ValueError("its order names a variant that it does not have")

    def variant_at(self, step: int) -> int:
        """The variant of a step: a function of its number alone, so that all ranks switch together without a message."""
        if step < self.from_step:
            return 0
        return self.order[(step - self.from_step) // self.block_steps % len(self.order)]

    def next_block(self, step: int) -> int:
        """The first step of the next block."""
        if not self.variants:
            return NEVER
        if step < self.from_step:
            return self.from_step
        return step + self.block_steps - (step - self.from_step) % self.block_steps


def read_request(folder: str) -> TrialRequest:
    """Raises OSError, ValueError, TypeError or KeyError."""
    return TrialRequest(json.loads(rank_ring_folder.read(folder, TRIAL_REQUEST)))


def _changes(found: Any) -> list[Change]:
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("its changes are no list of objects")
    return found


class Refused(Exception):
    """A change is not made; the message says why."""


class Outcomes:
    """What became of each change, by index. Any thread may add to it.

    `changed` is called when a change is made or refused for the first time.
    """

    def __init__(self, count: int) -> None:
        self.changed: Callable[[], None] | None = None
        self._applied = dict.fromkeys(range(count), 0)
        self._refused: dict[int, str] = {}
        self._switches: list[list[int]] = []

    def applied(self, index: int) -> None:
        times = self._applied.get(index, 0)
        self._applied[index] = times + 1
        if not times and self.changed is not None:
            self.changed()

    def refused(self, index: int, reason: Any) -> None:
        """`reason`: words or an exception. The first reason for a change is kept."""
        if isinstance(reason, BaseException) and not isinstance(reason, Refused):
            reason = "%s: %s" % (type(reason).__name__, reason)
        if index in self._refused:
            return
        self._refused[index] = str(reason).strip()[:_REASON_CHARS_MAX]
        if self.changed is not None:
            self.changed()

    def is_refused(self, index: int) -> bool:
        return index in self._refused

    def switched(self, step: int, variant: int) -> None:
        self._switches.append([step, variant])
        del self._switches[:-_SWITCHES_MAX]

    def facts(self) -> TrialFacts:
        return {
            "applied": [[index, times] for index, times in sorted(self._applied.items())],
            "refused": sorted(self._refused.items()),
            "switches": list(self._switches),
        }
