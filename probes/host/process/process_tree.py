"""The processes of a job, followed from its main process through every fork, and their CPU time even after they are gone."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rn50_advisor.probes.host.process.death_watch import ExitStatus, exit_status
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, RECORD_BYTES, KeptFiles, Stat, parse_stat

# Processes taken for foreign are checked again after this time: a pid may be reused between two ticks.
RESCAN_PERIOD_NS = 30_000_000_000
SETTLING_NS = 3_000_000_000  # a young process may still exec, which changes its command line


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the job at its last reading. `exit` is known only if it was seen as a zombie."""

    pid: int
    parent_pid: int
    start_ticks: int  # together with the pid, identifies the process
    started_ns: int  # monotonic
    first_seen_ns: int
    command: str
    cpu_s: float
    children_cpu_s: float  # children that it has waited for, including those that lived only between two updates
    zombie: bool = False
    exit: ExitStatus | None = None


@dataclass(frozen=True, slots=True)
class TreeChange:
    """The result of an update: members that started and members that ended since the last one."""

    started: tuple[Member, ...] = ()
    ended: tuple[Member, ...] = ()


def boot_offset_ns() -> int:
    """CLOCK_MONOTONIC minus CLOCK_BOOTTIME: process start times count from boot and include suspended time."""
    return time.monotonic_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class ProcessTree:
    """Follows descendants by parent pid. Members stay members when their parent dies and init adopts them.

    An update reads only processes that are new in /proc: reading `task/<tid>/children` would cost a read per thread of every member (a
    rank has hundreds), and many kernels lack it. An orphan whose parent lived only between two updates is still recognised if a member
    leads its session or process group.
    """

    def __init__(self, root_pid: int, root: Path = Path("/")) -> None:
        self.root_pid = root_pid
        self._proc = root / "proc"
        self._root = root
        self._files = KeptFiles(root)
        self._root_seen = False
        self._offset_ns = boot_offset_ns()
        self._members: dict[int, Member] = {}
        self._stats: dict[int, Stat] = {}
        self._adopted: set[int] = set()
        self._leaders: set[int] = set()  # ids of sessions and process groups that a member leads or led
        self._foreign: set[str] = set()
        self._rescan_ns = 0
        self._dead_cpu_s = 0.0  # dead members whose parents are gone, too
        self._dead_children: dict[int, float] = {}  # by living parent: CPU seconds of dead children, last reading
        self._highest_cpu_s = 0.0
        self._updated_ns: int | None = None
        self._change = TreeChange()

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all processes that ever belonged to the job. Never falls.

        A living child counts by itself. A dead child counts in its parent: with the kernel's number if the parent waits for its children,
        else with the last reading.
        """
        alive = sum(self._with_children(m) for m in self._members.values())
        # a child may end between the readings of itself and of its parent: until the next update, both then count it
        self._highest_cpu_s = max(self._highest_cpu_s, self._dead_cpu_s + alive)
        return self._highest_cpu_s

    def _with_children(self, member: Member) -> float:
        return member.cpu_s + max(member.children_cpu_s, self._dead_children.get(member.pid, 0.0))

    @property
    def processes(self) -> int:
        return sum(not m.zombie for m in self._members.values())

    def members(self) -> tuple[Member, ...]:
        """All existing members, including zombies, oldest first."""
        return tuple(sorted(self._members.values(), key=lambda m: (m.start_ticks, m.pid)))

    def stat_of(self, pid: int) -> Stat | None:
        """A member's stat from the last update."""
        return self._stats.get(pid)

    def adopt(self, pid: int) -> None:
        """Adds a process of the job that no member started (srun's ranks, daemons), and its descendants."""
        if pid != self.root_pid and pid not in self._members and pid not in self._adopted:
            self._adopted.add(pid)
            self._foreign.clear()  # its children may have been taken for strangers

    def adopted(self, pid: int) -> bool:
        return pid in self._adopted

    def update(self, now_ns: int) -> TreeChange:
        """Rereads the processes. A second call with the same time costs nothing and returns the same."""
        if now_ns != self._updated_ns:
            self._updated_ns = now_ns
            ended = self._refresh(now_ns)
            started = self._discover(now_ns)
            self._files.prune(self._members)
            self._change = TreeChange(tuple(started), tuple(ended))
        return self._change

    def _refresh(self, now_ns: int) -> list[Member]:
        ended = []
        for pid, member in list(self._members.items()):
            stat = self._read_stat(pid)
            if stat is None or stat.start_ticks != member.start_ticks or stat.state == b"X":
                ended.append(member)
                del self._members[pid], self._stats[pid]
                self._adopted.discard(pid)
                self._count_dead(member)
                continue
            previous = self._stats[pid]
            self._note(pid, stat)
            if stat != previous or now_ns - member.first_seen_ns < SETTLING_NS:
                self._members[pid] = self._changed(member, previous, stat, now_ns)
        return ended

    def _count_dead(self, member: Member) -> None:
        used = self._with_children(member)
        self._dead_children.pop(member.pid, None)
        if member.parent_pid in self._members:
            self._dead_children[member.parent_pid] = self._dead_children.get(member.parent_pid, 0.0) + used
        else:
            self._dead_cpu_s += used

    def _changed(self, member: Member, previous: Stat, stat: Stat, now_ns: int) -> Member:
        pid, command, ended = member.pid, member.command, member.exit
        zombie = stat.state == b"Z"
        if zombie:
            ended = ended or exit_status(pid, self._root)
        elif stat.comm != previous.comm or now_ns - member.first_seen_ns < SETTLING_NS:
            command = self._command(pid) or command
        return replace(
            member,
            parent_pid=stat.parent_pid,
            cpu_s=max(stat.cpu_s, member.cpu_s),
            children_cpu_s=max(stat.children_cpu_s, member.children_cpu_s),
            command=command,
            zombie=zombie,
            exit=ended,
        )

    def _discover(self, now_ns: int) -> list[Member]:
        if now_ns >= self._rescan_ns:
            self._foreign.clear()
            self._rescan_ns = now_ns + RESCAN_PERIOD_NS
        names = {name for name in os.listdir(self._proc) if name.isdigit()}  # noqa: PTH208 - a Path for each of 3000 processes
        self._foreign &= names
        self._adopted = {pid for pid in self._adopted if str(pid) in names}
        candidates = {}
        for name in names - self._foreign:
            pid = int(name)
            if pid not in self._members and (stat := self._glance(pid)) is not None:
                candidates[pid] = stat
        started = []
        while found := [(pid, stat) for pid, stat in candidates.items() if self._belongs(pid, stat)]:
            for pid, stat in found:
                del candidates[pid]
                started.append(self._add(pid, stat, now_ns))
        self._foreign.update(str(pid) for pid in candidates)
        # The kernel never reuses a pid that still names a session or group: an id with members in it is unambiguous.
        self._leaders &= {i for stat in self._stats.values() for i in (stat.session, stat.group)}
        return started

    def _belongs(self, pid: int, stat: Stat) -> bool:
        if pid == self.root_pid:
            return not self._root_seen  # later it can only be another process with the same pid
        if pid in self._adopted:
            return True
        return stat.parent_pid in self._members or stat.session in self._leaders or stat.group in self._leaders

    def _add(self, pid: int, stat: Stat, now_ns: int) -> Member:
        started_ns = int(stat.start_ticks * (1e9 / CLOCK_TICKS)) + self._offset_ns
        member = Member(
            pid,
            stat.parent_pid,
            stat.start_ticks,
            started_ns,
            now_ns,
            self._command(pid),
            stat.cpu_s,
            stat.children_cpu_s,
            stat.state == b"Z",
        )
        self._members[pid] = member
        if pid in self._adopted and member.parent_pid not in self._members:
            # else the job's counter would jump, as if many cores had been busy at once
            self._dead_cpu_s -= self._with_children(member)
        self._note(pid, stat)
        self._root_seen |= pid == self.root_pid
        return member

    def _note(self, pid: int, stat: Stat) -> None:
        self._stats[pid] = stat
        if pid in (stat.session, stat.group):
            self._leaders.add(pid)

    def _glance(self, pid: int) -> Stat | None:
        """Like `_read_stat`, for processes that are probably not the job's: keeps no descriptor."""
        try:
            fd = os.open(f"{self._proc}/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return parse_stat(os.read(fd, RECORD_BYTES))
        except (OSError, ValueError, IndexError):
            return None
        finally:
            os.close(fd)

    def _read_stat(self, pid: int) -> Stat | None:
        """The process's stat. None if it is gone; the last reading on any other error (no descriptor left), since it may still live."""
        try:
            return parse_stat(self._files.read(pid, "stat"))
        except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
            return None
        except OSError:
            return self._stats.get(pid)

    def _command(self, pid: int) -> str:
        try:
            text = (self._proc / str(pid) / "cmdline").read_bytes()
        except OSError:
            return ""
        return text.rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
