"""Records the places and numbers of checkpoints, and the work on them after `torch.save`: fsync, and the writing of its file.

A file holds the whole storage of each tensor, also of one that is a small part of it: at the first save of a line both are counted.

After `torch.save` a buffer in memory must still be written, and a file on an object store is uploaded when it is closed. Both are done
when the function that created the file object ends, and with it the object.
"""

from __future__ import annotations

import sys
import weakref
from _thread import get_ident
from itertools import islice
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..facts import process_facts
from ..steps.step_phases import CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.rank_documents import SaveSite
    from ..steps.step_account import Account

    # what the loop did, since when, the line, sizes of what it holds
    _Begun = tuple[Account, int, int, tuple[str, int], tuple[int, int]]

_SITES_MAX = 64  # generated code may have new lines without end
_PICKLING_FRAMES = 16  # from `torch.save` to the collective that pickles
# An fsync within this time after torch.save belongs to the checkpoint.
_TAIL_NS = 2_000_000_000
_ITEMS_MAX = 10_000  # of a checkpoint: 2 us each


def _in_exchange() -> bool:
    """True within a collective that exchanges objects: it pickles their tensors, which calls `torch.save`."""
    callers = islice(process_facts.jobs_frames(2), _PICKLING_FRAMES)
    return any(frame.f_code.co_filename.endswith("distributed_c10d.py") for frame in callers)


def sizes_of(saved: Any) -> tuple[int, int]:
    """Bytes of the storages of a checkpoint's tensors, and of the parts of them that the tensors show.

    Tensors are looked for in dicts, lists and tuples; (0, 0) for anything else, for too many, or without torch.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return 0, 0
    storages: dict[int, tuple[int, dict[tuple[Any, ...], int]]] = {}
    todo, items = [saved], 1
    while todo:
        each = todo.pop()
        if isinstance(each, dict) or type(each) in (list, tuple):
            items += dict.__len__(each) if isinstance(each, dict) else len(each)
            if items > _ITEMS_MAX:  # before any is copied
                return 0, 0
            todo += dict.values(each) if isinstance(each, dict) else each
        elif type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout is torch.strided:
            storage = each.untyped_storage()
            _, parts = storages.setdefault(
                storage._cdata, (storage.nbytes(), {})
            )  # its address: the data stays untouched
            part = each.storage_offset(), tuple(each.shape), each.stride()
            parts[part] = min(storage.nbytes(), each.numel() * each.element_size())
    stored = sum(size for size, _ in storages.values())
    return stored, sum(min(size, sum(parts.values())) for size, parts in storages.values())


class Saves:
    def __init__(self) -> None:
        self._sites: dict[tuple[str, int], SaveSite] = {}
        self._ended_at = 0
        self._file: weakref.ref[Any] | None = None  # the file object of the last save

    def facts(self) -> list[SaveSite]:
        return list(self._sites.values())

    def begin(self, account: Account | None, saved: Any = None) -> _Begun | None:
        self._file = None
        if account is None or account.ring is None or account.phase == CHECKPOINT:  # nested: part of the outer save
            return None
        if _in_exchange():
            return None
        site = process_facts.call_site()
        sizes = (0, 0) if site in self._sites else sizes_of(saved)
        return account, account.checkpoint_begin(), perf_counter_ns(), site, sizes

    def end(self, token: _Begun) -> bool:
        """True for the first save at its line."""
        account, phase, began, site, sizes = token
        entry = self._sites.get(site)
        if entry is None and len(self._sites) >= _SITES_MAX:
            account.checkpoint_end(phase, began, -1)
            self._ended_at = perf_counter_ns()
            return False
        if entry is None:
            entry = self._sites[site] = {"id": len(self._sites), "file": site[0], "line": site[1], "count": 0}
            # perhaps a library, whose next actions write the checkpoint, too
            entry["caller"] = process_facts.calling_function()
            entry["stored_bytes"], entry["needed_bytes"] = sizes
        entry["count"] += 1
        account.checkpoint_end(phase, began, entry["id"])
        self._ended_at = perf_counter_ns()
        return bool(entry["count"] == 1)

    def until_closed(self, account: Account, file: Any, failed: Callable[[], None]) -> None:
        """Called after a save to this object or file name. If the object is deleted before the next mark, that time is checkpoint, too."""
        since = account.since

        def gone(_: Any) -> None:
            try:
                if account.since == since and get_ident() == account.thread and not account.replaying:
                    self._ended_at = account.enter(account.phase, CHECKPOINT)
                    account.span("checkpoint", since, self._ended_at, 0, 0, -1)
            except Exception:
                failed()

        try:
            self._file = weakref.ref(file, gone)
        except TypeError:
            pass  # a name, or an object that cannot be watched

    def fsync_begin(self, account: Account | None) -> tuple[Account, int, int] | None:
        if account is None or account.ring is None or perf_counter_ns() - self._ended_at > _TAIL_NS:
            return None
        return account, account.checkpoint_begin(), perf_counter_ns()

    def fsync_end(self, token: tuple[Account, int, int]) -> None:
        account, phase, began = token
        account.checkpoint_end(phase, began, -1)
        self._ended_at = perf_counter_ns()
