"""The table of the job's processes: who was there, in which role, when it ended and how."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from pathlib import Path

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Process, happened
from rn50_advisor.advisor.run.rings.ring_reader import RingIdentity
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.event_documents import LeftRunning, NotedDeath, OomKill
from rn50_advisor.probes.host.process.death_watch import ProcessDeath
from rn50_advisor.probes.host.process.process_tree import Member, TreeChange
from rn50_advisor.probes.host.procfs import parse_stat

_OTHERS_MAX = 2000  # processes without a ring; a job that starts more of them is building, not training
_DEAD_KEPT = 1000
_LOOK_S = 0.02


class Roster:
    """Rows are written as they change. Any method may raise RecordingStopped from the writer."""

    def __init__(self, writer: RunWriter, root_pid: int, root_command: str) -> None:
        self._writer = writer
        self.root_pid = root_pid
        self.root_command = root_command
        self._members: dict[int, Member] = {}
        self._rows: dict[int, Process] = {}  # the living, and the last of the dead
        self._dead: deque[Process] = deque()
        self._others = 0
        self._rank_deaths = 0

    def update(self, change: TreeChange, members: tuple[Member, ...]) -> None:
        """Applies changes of the process tree. Deaths come through `ended`, which carries what no other source knows."""
        self._members = {member.pid: member for member in members}
        for member in change.started:
            self._meet(member)
        for member in members:
            known = self._rows.get(member.pid)
            # one just forked is met under its parent's command line, or none
            if known is not None and known.ended_ns is None and member.command not in ("", known.command):
                self._put(replace(known, command=member.command))

    def parent_of(self, pid: int) -> int | None:
        member = self._members.get(pid)
        return member.parent_pid if member else None

    def enrol(self, who: RingIdentity, rank: int | None, now_ns: int) -> Process:
        """Registers a process as a rank or a worker once it has made a ring."""
        known = self._rows.get(who.pid)
        if known is not None and (known.ended_ns is not None or known.role != "other"):
            known = None  # another life under the same pid
        process = Process(
            pid=who.pid,
            role="rank" if who.role == "rank" else "worker",
            rank=rank,
            local_rank=who.local_rank if who.local_rank >= 0 else None,
            worker=who.worker if who.worker >= 0 else None,
            parent_pid=who.parent_pid,
            command=known.command if known else self._command_of(who.pid),
            first_seen_ns=known.first_seen_ns if known else now_ns,
        )
        return self._put(process)

    def assign_rank(self, pid: int, rank: int) -> None:
        """Sets a worker's rank once it is known."""
        self._put(replace(self._rows[pid], rank=rank))

    def died(self, death: ProcessDeath, *, clean_exit: bool | None) -> bool:
        """Records a death. False if the process is unknown or was recorded as dead before: the first observation is the best."""
        process = self._rows.get(death.pid)
        if process is None or process.ended_ns is not None:
            return False
        process = self._put(
            replace(
                process,
                ended_ns=death.t_ns,
                exit_code=death.exit_code,
                exit_signal=death.signal,
                clean_exit=clean_exit,
            )
        )
        if process.role != "other":
            self._note_death(process)
        self._let_go(process)
        return True

    def root_seen(self, now_ns: int) -> None:
        """Adds the main process of a job that ended before the first look at its processes."""
        if self.root_pid not in self._rows:
            self._put(Process(self.root_pid, "other", None, None, None, 0, self.root_command, now_ns))

    def mark_oom_killed(self, pid: int) -> None:
        """Marks a dead process. This comes some time after its death: the kernel's counters are read once a second."""
        known = self._rows.get(pid)
        if known is None:
            return  # its row was dropped because so many have died since
        process = self._put(replace(known, oom_killed=True))
        data: OomKill = {"role": process.role, "command": process.command}
        self._writer.put_event(happened(OomKill, data, t_ns=process.ended_ns or 0, pid=pid, rank=process.rank))

    def record_survivors(self, within_s: float) -> None:
        """Records processes that the job left running and that do not end within `within_s`. They are the user's and stay untouched."""
        left = [m for m in self._members.values() if m.pid != self.root_pid]
        deadline = time.monotonic() + within_s
        while (left := [m for m in left if _lives(m)]) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        if left:
            data: LeftRunning = {"processes": [{"pid": m.pid, "command": m.command} for m in left]}
            self._writer.put_event(happened(LeftRunning, data, t_ns=time.perf_counter_ns()))

    def _meet(self, member: Member) -> None:
        known = self._rows.get(member.pid)
        # its ring, and even its end, may be known before the process tree shows it; a later start is a new process under the same pid
        if known is not None and (known.ended_ns is None or member.started_ns < known.ended_ns):
            return
        if member.pid != self.root_pid:
            self._others += 1
            if self._others == _OTHERS_MAX:
                reason = (
                    f"the job started more than {_OTHERS_MAX} processes; those that do not train are no longer listed"
                )
                self._writer.put_gap(ProbeGap("processes", "job", reason))
            if self._others >= _OTHERS_MAX:
                return
        self._put(
            Process(member.pid, "other", None, None, None, member.parent_pid, member.command, member.first_seen_ns)
        )

    def _command_of(self, pid: int) -> str:
        member = self._members.get(pid)
        return member.command if member else ""

    def _let_go(self, dead: Process) -> None:
        """Forgets a dead process a few seconds later, once the tree and the OOM killer's count have arrived. A job may
        start workers for ever.
        """
        self._dead.append(dead)
        if len(self._dead) > _DEAD_KEPT:
            oldest = self._dead.popleft()
            now = self._rows.get(oldest.pid)
            if now is not None and now.first_seen_ns == oldest.first_seen_ns:
                del self._rows[oldest.pid]

    def _note_death(self, process: Process) -> None:
        orderly = process.exit_signal is None and (
            process.exit_code == 0 or (process.exit_code is None and process.clean_exit)
        )
        first = process.role == "rank" and not orderly and self._rank_deaths == 0
        self._rank_deaths += process.role == "rank" and not orderly
        data: NotedDeath = {
            "role": process.role,
            "exit_code": process.exit_code,
            "signal": process.exit_signal,
            "clean_exit": process.clean_exit,
            "orderly": bool(orderly),
            "first": first,  # the first rank that did not leave in order: the others mostly follow it
        }
        assert process.ended_ns is not None
        self._writer.put_event(happened(NotedDeath, data, t_ns=process.ended_ns, pid=process.pid, rank=process.rank))

    def _put(self, process: Process) -> Process:
        self._rows[process.pid] = process
        self._writer.put_process(process)
        return process


def _lives(member: Member) -> bool:
    try:
        stat = parse_stat(Path(f"/proc/{member.pid}/stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return False
    return stat.state not in (b"Z", b"X") and stat.start_ticks == member.start_ticks
