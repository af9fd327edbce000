"""Ranks that others wait for and that have not begun to train: processes that a rank's own parent started like it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from rn50_advisor.probes.host.procfs import parse_stat

_RANK = re.compile(rb"(?:^|\0)RANK=(\d+)\0")
_DIGITS = re.compile(rb"\d+")  # of descriptors that a spawned process is handed


def absent_ranks(seen: Mapping[int, int], group: int, *, root: Path = Path("/")) -> dict[int, int]:
    """pid by rank, of those of a group of this size that are not among the `seen` ones.

    As the launcher numbered them, or the only process left for the only number left. None where a number is beyond the group: then its
    size is not known.
    """
    left = [rank for rank in range(group) if rank not in seen] if max(seen, default=-1) < group else []
    found: dict[int, int] = {}
    strangers = []
    for pid in sorted(_siblings(set(seen.values()), root / "proc")) if left else ():
        told = _RANK.search(_read(root / f"proc/{pid}/environ"))
        if told is None:
            strangers.append(pid)
        elif int(told[1]) in left:
            found[int(told[1])] = pid
    if len(strangers) == 1 and len(left) - len(found) == 1:
        found[next(rank for rank in left if rank not in found)] = strangers[0]
    return found


def _siblings(pids: set[int], proc: Path) -> Iterator[int]:
    """Other children of the parents of these with the same command line, up to its digits."""
    ours = {(_parent(pid, proc), _command(pid, proc)) for pid in pids} - {(-1, b"")}  # they have gone
    for child in proc.iterdir():
        if child.name.isdigit() and int(child.name) not in pids:
            pid = int(child.name)
            if (_parent(pid, proc), _command(pid, proc)) in ours:
                yield pid


def _parent(pid: int, proc: Path) -> int:
    with contextlib.suppress(ValueError, IndexError):
        return parse_stat(_read(proc / f"{pid}/stat")).parent_pid
    return -1


def _command(pid: int, proc: Path) -> bytes:
    return _DIGITS.sub(b"", _read(proc / f"{pid}/cmdline"))


def _read(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""
