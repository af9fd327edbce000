"""Process groups of the job, with their numbers of calls, and the bytes that their links carry."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ..layout import COLLECTIVE_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable

GROUPS_MAX = 256  # with more, destroyed groups are dropped, then all groups; their call counts restart


class Group:
    """A process group and its number of calls. Its name identifies it on all ranks."""

    __slots__ = ("backend", "begun", "name", "of", "size")

    def __init__(self, of: Callable[[], Any], name: str, size: int, backend: str) -> None:
        self.of = of  # a weak reference: groups are destroyed and recreated, possibly at the same address
        self.name = int.from_bytes(name.encode("utf-8", "replace")[:7], "big")
        self.size = size
        self.backend = backend
        self.begun = 0


class Groups:
    """The groups seen so far. `module`: torch's module of collectives."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._kind: Any = module.ProcessGroup
        self._known: dict[int, Group] = {}

    def forget(self) -> None:
        """Resets in a new process."""
        self._known = {}

    def of(self, given: tuple[Any, ...]) -> Group:
        """The group among a call's arguments, else the default one."""
        group = next((item for item in given if isinstance(item, self._kind)), None)
        if group is None:
            group = self._module.GroupMember.WORLD
        known = self._known.get(id(group))
        if known is None or known.of() is not group:
            if group is None:
                return Group(_no_group, "", 0, "")  # no group yet: torch raises its own error
            if len(self._known) >= GROUPS_MAX:
                self._known = {n: kept for n, kept in self._known.copy().items() if kept.of() is not None}
                if len(self._known) >= GROUPS_MAX:
                    self._known = {}
            name, backend = str(getattr(group, "group_name", "")), str(self._module.get_backend(group))
            known = self._known[id(group)] = Group(weakref.ref(group), name, group.size(), backend)
        return known


def _no_group() -> None:
    return None


def bus_bytes(kind: int, sent: int, ranks: int) -> int:
    """Bytes that each link carries for a call on `sent` bytes: 2 (N-1)/N of them for a ring all-reduce."""
    name = COLLECTIVE_KINDS[kind]
    if ranks < 2:
        return 0
    if name == "all_reduce":
        return 2 * (ranks - 1) * sent // ranks
    return sent if name in ("broadcast", "reduce") else (ranks - 1) * sent // ranks
