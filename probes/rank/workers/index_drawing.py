"""What it takes to draw the indices of a batch: the training thread does so at each fetch, whoever makes the batch then."""

from __future__ import annotations

import weakref
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..hidden_frames import hide_frame

if TYPE_CHECKING:
    from ..step_account import Account

LEAST_NS = 100_000  # torch's own samplers take 10 us for 256 indices, and once in an epoch longer


class Drawing:
    """Timed in clocked steps, by an attribute of the iterator's own: a plain step meets nothing of it."""

    __slots__ = ("_began_ns", "_count", "_took_ns", "_watched")

    def __init__(self) -> None:
        self._watched: Any = None

    def watch(self, iterator: Any) -> None:
        """Time what this iterator's next fetch draws; a method that lies on the object itself is the job's."""
        draw = getattr(type(iterator), "_next_index", None)
        if draw is None or self._watched is not None or "_next_index" in vars(iterator):
            return
        watched = weakref.ref(iterator)
        self._began_ns = self._took_ns = self._count = 0

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = perf_counter_ns()
            try:
                return draw(watched(), *args, **kwargs)
            except BaseException as error:
                hide_frame(error)
                raise
            finally:
                self._began_ns = self._began_ns or began
                self._took_ns += perf_counter_ns() - began
                self._count += 1

        self._watched = watched
        iterator._next_index = timed

    def release(self, account: Account, loader: int) -> None:
        """The fetch is over: note what was drawn, where that took its time."""
        if self._watched is None:
            return
        watched, self._watched = self._watched(), None
        if watched is not None:
            del watched._next_index
        if self._took_ns >= LEAST_NS:
            ended = self._began_ns + self._took_ns
            account.span("index", self._began_ns, ended, 0, self._count, loader)
