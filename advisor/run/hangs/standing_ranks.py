"""What is told of ranks that stand still, and of those that are absent: stacks, collectives, the kernel's word and their own."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.hangs.watched_ranks import Place, Places, Watched
from rn50_advisor.advisor.run.rings.ring_reader import Position
from rn50_advisor.advisor.run.stacks.stack_looker import Looker
from rn50_advisor.advisor.run.stacks.stack_rows import COMPILERS, described, training_thread
from rn50_advisor.probes.host.procfs import parse_stat, read_text
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack

_RANK = re.compile(rb"(?:^|\0)RANK=(\d+)\0")
_DIGITS = re.compile(rb"\d+")  # of descriptors that a spawned process is handed


# Ranks that others wait for and that have not begun to train: processes that a rank's own parent started like it.
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


_FLIGHT_BYTES_MAX = 1 << 20


class StandingRanks:
    """`with_stacks`: processes may be looked into."""

    def __init__(self, *, places: Places, looker: Looker, with_stacks: bool, post: Callable[[ProbeGap], None]) -> None:
        self._places = places
        self._looker = looker
        self._with_stacks = with_stacks
        self._post = post

    def rows(self, here: Sequence[Place], watched: Sequence[Watched], since_ns: int) -> list[dict[str, Any]]:
        """Of all ranks: who waits is as telling as who does not. `watched`: also those of whom nobody knows where they are."""
        return [self._row(rank, at) for rank, at in (*here, *_absent(watched, since_ns))]

    def _row(self, rank: Watched, at: Position) -> dict[str, Any]:
        row: dict[str, Any] = {
            "rank": rank.rank,
            "pid": rank.pid,
            "phase": at.phase,
            "step": at.step,
            "since_ns": at.since_ns,
            "since_s": (time.perf_counter_ns() - at.since_ns) / 1e9,
            **_running(rank),
            **self._collective(rank),
        }
        own = _own_words(rank, at)
        if own.get("dumps"):
            row["flight"] = own["dumps"]
        stack = None
        if self._with_stacks and not self._looker.refused:
            stacks, _ = self._looker.dump(rank.pid)
            if isinstance(stacks, ProbeGap):
                self._post(stacks)
                row["gap"] = stacks.reason
            else:
                stack = training_thread(stacks, rank.thread)
                # a backward pass is compiled in a thread of autograd's
                row["compiles"] = any(frame.file.endswith(COMPILERS) for each in stacks for frame in each.frames)
        if stack is None and own.get("stack"):
            stack = _told_stack(own["stack"])
        if stack is not None:
            row |= {"thread": stack.name, **described(stack, with_text=False)}
        return row

    def _collective(self, rank: Watched) -> dict[str, Any]:
        """Which collective it is in, as its ring tells."""
        call = self._places.collective(rank)
        if call is None:
            return {}
        inside_s = (time.perf_counter_ns() - call.inside_since_ns) / 1e9 if call.inside_since_ns else None
        told = {"begun": call.begun, "kind": call.kind, "group": call.group, "size": call.size, "inside_s": inside_s}
        return {"collective": told}


def _absent(watched: Sequence[Watched], since_ns: int) -> Iterator[Place]:
    """Ranks that have no ring since they have not begun their first backward pass; of where they are only this is known."""
    seen = {rank.rank: rank.pid for rank in watched}
    group = max((rank.group for rank in watched), default=1)
    at = Position("start", 0, since_ns, 0, 0, ended=False)
    for rank, pid in sorted(absent_ranks(seen, group).items()):
        ring = watched[0].ring.with_name(f"rank-{pid}.ring")  # where it will be
        yield Watched(rank, pid, ring, 0, steps=0, outside_share=0.0, p99_ns=0), at


def _own_words(rank: Watched, at: Position) -> dict[str, list[dict[str, Any]]]:
    """What the rank wrote down when it had stood at this place for a while: torch's flight recorder, and its own stack."""
    path = rank.ring.with_name(f"flight-{rank.pid}.json")
    with contextlib.suppress(OSError, ValueError):
        if path.stat().st_size <= _FLIGHT_BYTES_MAX:
            told = json.loads(path.read_text())
            if isinstance(told, dict) and told.get("since_ns") == at.since_ns:
                lists = {key: told[key] for key in ("dumps", "stack") if isinstance(told.get(key), list)}
                return {key: [each for each in found if isinstance(each, dict)] for key, found in lists.items()}
    return {}


def _told_stack(frames: Sequence[dict[str, Any]]) -> ThreadStack | None:
    """A rank's own word on where its training thread stands, where nobody else may look into it."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        found = tuple(Frame(str(f["function"]), str(f["file"]), int(f["line"])) for f in frames)
        return ThreadStack(None, "told by the rank itself", True, False, found)
    return None


def _running(rank: Watched) -> dict[str, Any]:
    """What the kernel says of the thread that trains: R running, S sleeping, D in the kernel's hands (a disk, a driver), T stopped.

    `wchan`: where in the kernel it sleeps; empty or "0" where that is not told. `cpu_s` is of all threads: another one may work for it.
    """
    process = Path(f"/proc/{rank.pid}")
    try:
        whole = parse_stat((process / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return {"state": None}
    thread, state = process / f"task/{rank.thread or rank.pid}", whole.state
    with contextlib.suppress(OSError, ValueError, IndexError):
        state = parse_stat((thread / "stat").read_bytes()).state
    return {"state": state.decode(), "wchan": read_text(thread / "wchan") or "", "cpu_s": whole.cpu_s}
