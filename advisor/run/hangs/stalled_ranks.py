"""Collects evidence on stalled and absent ranks: stacks, collectives, kernel state and their own notes."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.hangs.watched_ranks import Place, Places, Watched
from rn50_advisor.advisor.run.rings.ring_reader import Position
from rn50_advisor.advisor.run.stacks.stack_looker import Looker
from rn50_advisor.advisor.run.stacks.stack_rows import COMPILERS, described, training_thread
from rn50_advisor.advisor.store.document_checks import fitting
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.collective_documents import StalledPosition
from rn50_advisor.probes.documents.event_documents import CallUnderWay, StalledRankRow
from rn50_advisor.probes.host.procfs import parse_stat, read_text
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.rank.side_files import FLIGHT

_RANK = re.compile(rb"(?:^|\0)RANK=(\d+)\0")
_DIGITS = re.compile(rb"\d+")  # of descriptors that a spawned process is handed


# Ranks that others wait for and that have not begun to train: processes that a rank's own parent started like it.
def absent_ranks(seen: Mapping[int, int], group: int, *, root: Path = Path("/")) -> dict[int, int]:
    """pid by rank, for ranks of a group of this size that are not in `seen`.

    By the launcher's numbers, or the only process left for the only number left. None if a number exceeds the group, whose size is then
    unknown.
    """
    left = [rank for rank in range(group) if rank not in seen] if max(seen, default=-1) < group else []
    found: dict[int, int] = {}
    unnumbered = []
    for pid in sorted(_siblings(set(seen.values()), root / "proc")) if left else ():
        match = _RANK.search(_read(root / f"proc/{pid}/environ"))
        if match is None:
            unnumbered.append(pid)
        elif int(match[1]) in left:
            found[int(match[1])] = pid
    if len(unnumbered) == 1 and len(left) - len(found) == 1:
        found[next(rank for rank in left if rank not in found)] = unnumbered[0]
    return found


def _siblings(pids: set[int], proc: Path) -> Iterator[int]:
    """Other children of the parents of these with the same command line, up to its digits."""
    known = {(_parent(pid, proc), _command(pid, proc)) for pid in pids} - {(-1, b"")}  # they have ended
    for child in proc.iterdir():
        if child.name.isdigit() and int(child.name) not in pids:
            pid = int(child.name)
            if (_parent(pid, proc), _command(pid, proc)) in known:
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


class StalledRanks:
    """`with_stacks`: processes may be inspected."""

    def __init__(self, *, places: Places, looker: Looker, with_stacks: bool, post: Callable[[ProbeGap], None]) -> None:
        self._places = places
        self._looker = looker
        self._with_stacks = with_stacks
        self._post = post

    def rows(self, here: Sequence[Place], watched: Sequence[Watched], since_ns: int) -> list[StalledRankRow]:
        """Returns one row per rank, waiting or not. `watched` includes ranks whose position is unknown."""
        return [self._row(rank, at) for rank, at in (*here, *_absent(watched, since_ns))]

    def _row(self, rank: Watched, at: Position) -> StalledRankRow:
        row: StalledRankRow = {
            "rank": rank.rank,
            "pid": rank.pid,
            "phase": at.phase,
            "step": at.step,
            "since_ns": at.since_ns,
            "since_s": (time.perf_counter_ns() - at.since_ns) / 1e9,
        }
        _add_running(row, rank)
        if (call := self._collective(rank)) is not None:
            row["collective"] = call
        own = _own_note(rank, at)
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
                # a backward pass is compiled in autograd's thread
                row["compiles"] = any(frame.file.endswith(COMPILERS) for each in stacks for frame in each.frames)
        if stack is None and own.get("stack"):
            stack = _own_stack(own["stack"])
        if stack is not None:
            known = described(stack, with_text=False)
            row["thread"], row["frames"], row["user"] = stack.name, known["frames"], known.get("user")
        return row

    def _collective(self, rank: Watched) -> CallUnderWay | None:
        """The rank's current collective, from its ring."""
        call = self._places.collective(rank)
        if call is None:
            return None
        inside_s = (time.perf_counter_ns() - call.inside_since_ns) / 1e9 if call.inside_since_ns else None
        return {"begun": call.begun, "kind": call.kind, "group": call.group, "size": call.size, "inside_s": inside_s}


def _absent(watched: Sequence[Watched], since_ns: int) -> Iterator[Place]:
    """Ranks without a ring, because they have not begun their first backward pass; nothing else is known of their position."""
    seen = {rank.rank: rank.pid for rank in watched}
    group = max((rank.group for rank in watched), default=1)
    at = Position("start", 0, since_ns, 0, 0, ended=False)
    for rank, pid in sorted(absent_ranks(seen, group).items()):
        ring = watched[0].ring.with_name(f"rank-{pid}.ring")  # where it will be
        yield Watched(rank, pid, ring, 0, steps=0, outside_share=0.0, p99_ns=0), at


def _own_note(rank: Watched, at: Position) -> StalledPosition:
    """Notes that the rank wrote after it had stalled for a while: torch's flight recorder and its own stack."""
    path = rank.ring.with_name(FLIGHT % rank.pid)
    with contextlib.suppress(OSError, ValueError):
        if path.stat().st_size <= _FLIGHT_BYTES_MAX:
            note = json.loads(path.read_text())
            if isinstance(note, dict) and note.get("since_ns") == at.since_ns:
                return fitting(note, StalledPosition)[0]
    return {}


def _own_stack(frames: Sequence[StackFrame]) -> ThreadStack:
    """The rank's own record of its training thread's stack, for processes that cannot be inspected."""
    found = tuple(Frame(frame["function"], frame["file"], frame["line"]) for frame in frames)
    return ThreadStack(None, "recorded by the rank itself", True, False, found)


def _add_running(row: StalledRankRow, rank: Watched) -> None:
    """Kernel state of the training thread: R running, S sleeping, D uninterruptible (a disk, a driver), T stopped.

    `wchan`: the kernel function it sleeps in; empty or "0" if unknown. `cpu_s` covers all threads: another one may work for it.
    """
    process = Path(f"/proc/{rank.pid}")
    try:
        whole = parse_stat((process / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        row["state"] = None
        return
    thread, state = process / f"task/{rank.thread or rank.pid}", whole.state
    with contextlib.suppress(OSError, ValueError, IndexError):
        state = parse_stat((thread / "stat").read_bytes()).state
    row["state"], row["wchan"], row["cpu_s"] = state.decode(), read_text(thread / "wchan") or "", whole.cpu_s
