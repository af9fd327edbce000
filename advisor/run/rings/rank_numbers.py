"""Which number a rank goes by: its own where it knows it, else the lowest that no living process holds."""

from __future__ import annotations


class RankNumbers:
    """A restarted rank (elastic training, one script after another in a shell) takes up the number of its dead predecessor."""

    def __init__(self) -> None:
        self._holder: dict[int, int] = {}  # rank -> pid

    def take(self, claimed: int, pid: int) -> int:
        """`claimed` is -1 where the process does not know. A claim that a living process already made is not believed."""
        rank = claimed if claimed >= 0 and claimed not in self._holder else self._lowest()
        self._holder[rank] = pid
        return rank

    def release(self, rank: int, pid: int) -> None:
        if self._holder.get(rank) == pid:
            del self._holder[rank]

    def _lowest(self) -> int:
        rank = 0
        while rank in self._holder:
            rank += 1
        return rank
