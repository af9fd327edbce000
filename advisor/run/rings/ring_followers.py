"""Follows the rings of the job's ranks and workers: finds new ones, hands their records on, knows where each process is."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.run.rings.own_folder import start_ticks
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.rings.ring_reader import NotARing, Position, RingReader, Row
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.host.process.death_watch import ProcessDeath
from rn50_advisor.probes.host.process.process_tree import boot_offset_ns
from rn50_advisor.probes.host.procfs import CLOCK_TICKS
from rn50_advisor.probes.host.target import Target
from rn50_advisor.probes.rank.layout import BATCH_FIELDS, ERRORS_MAX, KIND_BATCH, KIND_GPU_STEP, KIND_STEP


# Which number a rank goes by: its own where it knows it, else the lowest that no living process holds.
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


_BATCH_CPU = BATCH_FIELDS.index("cpu_ns")
_HELD_ROWS_MAX = 20_000  # batches of workers whose rank is not known yet
_OWN_SHORTAGES = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
)  # it is our own shortage: the ring is tried again


class Followers:
    """`look` is for every poll, `state_positions` for every second; any method may raise RecordingStopped from the writer."""

    def __init__(
        self,
        writer: RunWriter,
        roster: Roster,
        ring_folder: Path | None,
        *,
        watch_death: Callable[[int], None],
    ) -> None:
        self._writer = writer
        self._roster = roster
        self._folder = ring_folder
        self._watch_death = watch_death
        self._by_pid: dict[int, Follower] = {}
        self._known: dict[str, int] = {}  # file name -> inode, of rings that were opened or refused
        self._numbers = RankNumbers()
        self._errors: dict[int, int] = {}
        self.lost_records = 0
        self.records = 0
        self.ranks_seen = 0

    def ranks(self) -> list[Follower]:
        """Living ranks in order of their number."""
        return sorted((f for f in self._by_pid.values() if f.role == "rank"), key=lambda f: f.rank or 0)

    def workers(self) -> list[Follower]:
        """Live loader workers."""
        return [f for f in self._by_pid.values() if f.role != "rank"]

    def makers(self, least_share: float, least_cores: float, now_ns: int) -> list[Follower]:
        """Processes that make batches for ranks with at least this share of input wait: their workers, or the rank itself; also workers
        that together keep so many cores busy, which training may lack.
        """
        short = {f.rank: f for f in self.ranks() if f.recent.wait_share >= least_share}
        workers = [f for f in self.workers() if f.rank is not None]
        if sum(f.made_cpu_ns / max(1, now_ns - f.first_seen_ns) for f in workers) < least_cores:
            workers = [f for f in workers if f.rank in short]
        loading = {f.rank for f in workers}
        return [*workers, *(f for rank, f in short.items() if rank not in loading)]

    def targets(self, *, with_workers: bool = True) -> list[Target]:
        """The processes to probe: ranks and workers, or the job's main process before any is known."""
        found = [
            Target(f.pid, "rank" if f.role == "rank" else "worker", f.rank)
            for f in self._by_pid.values()
            if f.role == "rank" or with_workers
        ]
        return found or [Target(self._roster.root_pid, "other")]

    def look(self, now_ns: int) -> None:
        """Finds new rings and reads the records since the last poll."""
        self._find(now_ns)
        for follower in list(self._by_pid.values()):
            self._read(follower)
        self._settle_workers()

    def state_positions(self) -> None:
        for follower in self.ranks():
            at = follower.position
            self._writer.put_position(follower.rank or 0, at.phase, at.step, at.since_ns)

    def died(self, death: ProcessDeath) -> bool:
        """Reads the rest of its ring and closes it; without a ring only the death is recorded. False if the death was known already."""
        follower = self._by_pid.get(death.pid)
        if follower is None:
            return self._roster.died(death, clean_exit=None)
        self._read(follower)
        self._settle_workers()
        if follower.role == "rank":
            at = follower.position
            self._writer.put_position(follower.rank or 0, at.phase, at.step, at.since_ns)
        news = self._roster.died(death, clean_exit=follower.position.ended)
        self._drop(follower)
        with contextlib.suppress(OSError):
            follower.reader.path.unlink()  # workers of many epochs would fill /dev/shm
        return news

    def close(self) -> None:
        """Ends all followers. Drops records of workers whose rank never became known, and reports their number."""
        orphaned = sum(f.held_rows for f in self._by_pid.values())
        for follower in list(self._by_pid.values()):
            self._drop(follower)
        if orphaned:
            self._report_orphaned(orphaned)

    def _find(self, now_ns: int) -> None:
        if self._folder is None:
            return
        try:
            entries = [e for e in os.scandir(self._folder) if e.name.endswith(".ring")]
        except OSError:
            return
        present = {entry.name for entry in entries}
        self._known = {name: inode for name, inode in self._known.items() if name in present}
        for entry in entries:
            if self._known.get(entry.name) == entry.inode():
                continue
            self._known[entry.name] = entry.inode()
            try:
                reader = RingReader(Path(entry.path))
            except FileNotFoundError:
                del self._known[entry.name]
            except (NotARing, OSError) as error:
                if getattr(error, "errno", None) in _OWN_SHORTAGES:
                    del self._known[entry.name]
                reason = f"{entry.name} cannot be read: {getattr(error, 'strerror', None) or error}"
                self._writer.put_gap(
                    ProbeGap("ring", entry.name, reason, "does the job run the recorder of another version?")
                )
            else:
                self._adopt(reader, now_ns)

    def _adopt(self, reader: RingReader, now_ns: int) -> None:
        who = reader.identity
        previous = self._by_pid.get(who.pid)
        if previous is not None:
            self._read(previous)
            # exec put a new interpreter into the same process, or a worker turned out to train: neither is a death to look into
            on_purpose = previous.position.ended or _lives_since(who.pid, previous.reader.identity.created_ns)
            self._roster.died(ProcessDeath(who.pid, now_ns, None, None), clean_exit=on_purpose)
            self._drop(previous)
        rank = None
        if who.role == "rank":
            rank = self._numbers.take(who.rank, who.pid)
            self.ranks_seen += 1
            if who.rank >= 0 and who.rank != rank:
                reason = f"two living processes claim to be rank {who.rank}; pid {who.pid} is shown as rank {rank}"
                self._writer.put_gap(
                    ProbeGap("rank", f"pid:{who.pid}", reason, "two jobs in one run, or a stale RANK variable?")
                )
        try:
            position = reader.position()
        except NotARing:
            position = Position("start", 0, now_ns, 0, 0, False)
        self._roster.enrol(who, rank, now_ns)
        self._by_pid[who.pid] = Follower(who.pid, who.role, who.parent_pid, rank, reader, position, now_ns)
        self._watch_death(who.pid)

    def _read(self, follower: Follower) -> None:
        try:
            drained = follower.reader.drain()
            follower.position = drained.position
        except (NotARing, OSError) as error:
            reason = f"the ring of pid {follower.pid} can no longer be read: {error}"
            self._writer.put_gap(ProbeGap("ring", f"pid:{follower.pid}", reason))
            self._drop(follower)
            return
        self._note_losses(follower, drained.lost)
        for kind, rows in drained.rows.items():
            self.records += len(rows)
            if follower.role == "rank" and kind == KIND_STEP:
                follower.recent.add(rows)
            elif follower.role == "rank" and kind == KIND_GPU_STEP:
                follower.recent.add_gpu(rows)
            elif follower.role != "rank" and kind == KIND_BATCH:
                follower.made_cpu_ns += sum(max(0, payload[_BATCH_CPU]) for _, payload in rows)
            if follower.rank is None:
                taken = rows[: max(0, _HELD_ROWS_MAX - follower.held_rows)]
                follower.held.setdefault(kind, []).extend(taken)
                follower.held_rows += len(taken)
            else:
                self._put(follower, kind, rows)

    def _put(self, follower: Follower, kind: int, rows: list[Row]) -> None:
        self._writer.put_records(kind, follower.rank or 0, rows, pid=follower.pid if kind == KIND_BATCH else None)

    def _note_losses(self, follower: Follower, lost: int) -> None:
        if lost:
            self.lost_records += lost
            reason = f"{self.lost_records} records were overwritten before they were read"
            self._writer.put_gap(ProbeGap("ring.records", "job", reason, "the agent got no CPU time for a while"))
        errors = follower.position.errors
        if errors > self._errors.get(follower.pid, 0):
            self._errors[follower.pid] = errors
            reason = f"the recorder in pid {follower.pid} suppressed {errors} errors of its own"
            if errors >= ERRORS_MAX:
                reason += (
                    f" and has recorded nothing since step {follower.position.step}: what came after it is unknown"
                )
            self._writer.put_gap(ProbeGap("recorder.errors", f"pid:{follower.pid}", reason))

    def _settle_workers(self) -> None:
        """Workers start before their rank's first backward pass makes it a rank: until then their records wait."""
        for follower in self._by_pid.values():
            if follower.rank is not None:
                continue
            rank = self._rank_above(follower.parent_pid)
            if rank is not None:
                follower.rank = rank
                self._roster.assign_rank(follower.pid, rank)
                for kind, rows in follower.held.items():
                    self._put(follower, kind, rows)
                follower.held, follower.held_rows = {}, 0

    def _rank_above(self, pid: int) -> int | None:
        """A fork server may stand between a worker and its rank."""
        for _ in range(4):
            above = self._by_pid.get(pid)
            if above is not None and above.role == "rank":
                return above.rank
            parent = self._roster.parent_of(pid)
            if parent is None:
                return None
            pid = parent
        return None

    def _drop(self, follower: Follower) -> None:
        follower.reader.close()
        self._by_pid.pop(follower.pid, None)
        self._errors.pop(follower.pid, None)
        if follower.role == "rank":
            self._numbers.release(follower.rank or 0, follower.pid)
        elif follower.rank is None and follower.held_rows:
            self._report_orphaned(follower.held_rows)
            follower.held_rows = 0

    def _report_orphaned(self, rows: int) -> None:
        reason = f"{rows} batches or more were made by workers of a process that the recorder did not see train"
        self._writer.put_gap(ProbeGap("batches", "job", reason))


def _lives_since(pid: int, t_ns: int) -> bool:
    """True if the process existed at that time; one that ended again at once counts as the same."""
    ticks = start_ticks(pid)
    return ticks is None or ticks * 1e9 / CLOCK_TICKS + boot_offset_ns() <= t_ns
