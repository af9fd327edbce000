"""Resources of each process of the job: CPU, memory, I/O, and run-queue delay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.process.death_watch import DeathWatch, ExitStatus, exit_status
from rn50_advisor.probes.host.process.process_tree import Member, ProcessTree, TreeChange
from rn50_advisor.probes.host.process.thread_delays import ThreadDelays
from rn50_advisor.probes.host.procfs import KeptFiles, Stat, parse_keyed, parse_stat
from rn50_advisor.probes.host.target import Target

__all__ = [
    "DeathWatch",
    "ExitStatus",
    "Member",
    "ProcessTree",
    "ProcessesProbe",
    "TreeChange",
    "exit_status",
]

IO_METRICS = {"proc.read_bytes": b"read_bytes", "proc.write_bytes": b"write_bytes", "proc.rchar_bytes": b"rchar"}
# /proc/<pid>/status costs the kernel ten times as much as the others. Reading a counter less often loses nothing.
WORKER_STATUS_PERIOD_NS = 5_000_000_000
# smaps_rollup walks all pages of a process: 20 to 30 ms per GB. It is read for one worker only (all workers behave alike), at a rate that
# costs at most 1/300 of a core.
PRIVATE_PERIOD_NS = 2_000_000_000
PRIVATE_COST = 300
# Minimum CPU time and maximum number of the job's other processes to report: a compiler may start dozens of
# helpers, mostly idle.
HELPER_CPU_S = 1.0
HELPERS_MAX = 4


class ProcessesProbe:
    """Reports each process; with a `tree` also the job as a whole, and it reuses the tree's reading of each process."""

    name = "processes"

    def __init__(self, root: Path = Path("/"), *, tree: ProcessTree | None = None) -> None:
        self._root = root
        self._tree = tree
        self._files = KeptFiles(root)
        self._gaps = GapsOnce()
        self._status_due_ns: dict[int, int] = {}
        self._delays = ThreadDelays(root)
        self._private_due_ns = 0
        self._followed = 0  # pid of the worker whose smaps_rollup is read

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        samples: list[Sample] = []
        if self._tree is not None:
            for target in targets:
                self._tree.adopt(target.pid)
            self._tree.update(now_ns)
            samples.append(Sample("job.cpu_s", "job", self._tree.cpu_s))
            samples.append(Sample("job.processes", "job", float(self._tree.processes)))
        pids = {t.pid for t in targets}
        if self._tree is not None:
            samples += _helpers(self._tree, pids)
        self._files.prune(pids)
        for pid in [pid for pid in self._status_due_ns if pid not in pids]:
            del self._status_due_ns[pid]
        self._delays.prune(pids)
        for target in targets:
            self._sample_process(now_ns, target, samples)
        if now_ns >= self._private_due_ns:
            self._sample_private(now_ns, targets, samples)
        return Reading(tuple(samples), self._gaps.take())

    def _sample_process(self, now_ns: int, target: Target, samples: list[Sample]) -> None:
        stat = self._stat(target.pid)
        if stat is None or stat.state in (b"Z", b"X"):
            return
        scope = f"pid:{target.pid}"
        samples.append(Sample("proc.cpu_s", scope, stat.cpu_s))
        samples.append(Sample("proc.rss_bytes", scope, float(stat.rss_bytes)))
        samples.append(Sample("proc.threads", scope, float(stat.threads)))
        self._sample_run_delay(target, scope, samples)
        if target.role == "rank":
            delay_s = self._delays.read(now_ns, target.pid, stat.threads)
            if delay_s is not None:
                samples.append(Sample("proc.threads_delay_s", scope, delay_s))
        self._sample_io(target, scope, samples)
        if now_ns >= self._status_due_ns.get(target.pid, 0):
            self._status_due_ns[target.pid] = now_ns + (WORKER_STATUS_PERIOD_NS if target.role == "worker" else 0)
            self._sample_status(target, scope, samples)

    def _stat(self, pid: int) -> Stat | None:
        stat = self._tree.stat_of(pid) if self._tree is not None else None
        if stat is not None:
            return stat
        try:
            return parse_stat(self._files.read(pid, "stat"))
        except (OSError, ValueError, IndexError):
            return None

    def _sample_run_delay(self, target: Target, scope: str, samples: list[Sample]) -> None:
        try:
            ran_ns, delay_ns = self._files.read(target.pid, "schedstat").split()[:2]
        except (OSError, ValueError) as e:
            self._missing(
                _delay_metrics(target), target, e, "schedstat", "the kernel is built without CONFIG_SCHED_INFO"
            )
            return
        if ran_ns == b"0":  # every process has run: 0 means that the kernel does not count
            hint = "the kernel keeps no scheduling statistics (CONFIG_SCHED_INFO or schedstats off)"
            self._gaps.add(_delay_metrics(target), scope, "schedstat reads zero", hint, key=(target.role, target.rank))
            return
        samples.append(Sample("proc.run_delay_s", scope, int(delay_ns) / 1e9))

    def _sample_io(self, target: Target, scope: str, samples: list[Sample]) -> None:
        try:
            values = parse_keyed(self._files.read(target.pid, "io"))
        except OSError as e:
            self._missing(tuple(IO_METRICS), target, e, "io", "the kernel is built without CONFIG_TASK_IO_ACCOUNTING")
            return
        for metric, key in IO_METRICS.items():
            if key in values:
                samples.append(Sample(metric, scope, float(values[key])))

    def _sample_status(self, target: Target, scope: str, samples: list[Sample]) -> None:
        """Context switches are the main thread's only: the kernel has no sum over threads."""
        try:
            text = self._files.read(target.pid, "status")
        except OSError as e:
            self._missing(("proc.involuntary_switches", "proc.held_bytes"), target, e, "status", "")
            return
        switches = _number(text, b"\nnonvoluntary_ctxt_switches:")
        if switches is not None:
            samples.append(Sample("proc.involuntary_switches", scope, float(switches)))
        own, shared = _number(text, b"\nRssAnon:"), _number(text, b"\nRssShmem:")
        if own is None or shared is None:
            if b"\nVmRSS:" in text:  # kernel threads and dying processes have no memory
                self._gaps.add("proc.held_bytes", scope, "no RssAnon in /proc/<pid>/status", "Linux before 4.5")
            return
        samples.append(Sample("proc.held_bytes", scope, 1024.0 * (own + shared)))

    def _sample_private(self, now_ns: int, targets: Sequence[Target], samples: list[Sample]) -> None:
        """Reads a worker's private memory: its copies of inherited pages show here, not in its resident memory."""
        workers = [target for target in targets if target.role == "worker"]
        if not workers:
            return
        target = next((t for t in workers if t.pid == self._followed), workers[0])
        self._followed = target.pid
        began_ns = time.thread_time_ns()
        try:
            text = self._files.read(target.pid, "smaps_rollup")
        except OSError as e:
            hint = "Linux before 4.14, or the advisor may not look into the job"
            self._missing(("proc.private_bytes",), target, e, "smaps_rollup", hint)
            return
        took_ns = time.thread_time_ns() - began_ns
        self._private_due_ns = now_ns + max(PRIVATE_PERIOD_NS, PRIVATE_COST * took_ns)
        clean, dirty = _number(text, b"\nPrivate_Clean:"), _number(text, b"\nPrivate_Dirty:")
        if clean is not None and dirty is not None:
            samples.append(Sample("proc.private_bytes", f"pid:{target.pid}", 1024.0 * (clean + dirty)))

    def _missing(self, metrics: tuple[str, ...], target: Target, error: Exception, name: str, hint: str) -> None:
        """Adds a gap, unless the process has ended."""
        if isinstance(error, ProcessLookupError) or not (self._root / f"proc/{target.pid}/stat").exists():
            return
        if isinstance(error, PermissionError):
            hint = "run the advisor as the user of the job; processes that changed user or are not dumpable need CAP_SYS_PTRACE"
        reason = error.strerror if isinstance(error, OSError) else str(error)
        reason = f"/proc/<pid>/{name}: {reason}"
        self._gaps.add(metrics, f"pid:{target.pid}", reason, hint, key=(target.role, target.rank))


def _helpers(tree: ProcessTree, known: set[int]) -> list[Sample]:
    """CPU time of the busiest members that are neither ranks nor workers."""
    busy = [m for m in tree.members() if m.pid not in known and not m.zombie and m.cpu_s >= HELPER_CPU_S]
    most = sorted(busy, key=lambda m: -m.cpu_s)[:HELPERS_MAX]
    return [Sample("proc.cpu_s", f"pid:{m.pid}", m.cpu_s) for m in most]


def _delay_metrics(target: Target) -> tuple[str, ...]:
    return ("proc.run_delay_s", "proc.threads_delay_s") if target.role == "rank" else ("proc.run_delay_s",)


def _number(text: bytes, key: bytes) -> int | None:
    """The whole number after a key. Parsing all sixty lines would cost more than reading them."""
    _, found, rest = text.partition(key)
    word = rest.split(None, 1)[:1]
    return int(word[0]) if found and word and word[0].isdigit() else None
