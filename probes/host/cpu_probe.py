"""The host's processors: their time by use, runnable tasks, and the cores this job may use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.model.metrics import Reading, Sample
from rn50_advisor.probes.host.cgroup.cgroup_probe import CgroupReader
from rn50_advisor.probes.host.counters import GapsOnce
from rn50_advisor.probes.host.process.process_tree import ProcessTree
from rn50_advisor.probes.host.procfs import CLOCK_TICKS, KeptFiles, parse_cpu_list, read_text
from rn50_advisor.probes.host.target import Target

STAT_BYTES = 1 << 18  # holds the cpu lines of 1024 cores; later lines are not needed
# With more cores, per-core counters are read every CORES_PERIOD_NS: 256 cores would be 1000 samples a second.
MANY_CORES = 16
CORES_PERIOD_NS = 10_000_000_000
FREQ_PERIOD_NS = 30_000_000_000  # reading the clock of 128 cores costs milliseconds and wakes idle ones


def parse_cpu_times(line: bytes) -> tuple[float, float, float, float]:
    """Seconds busy, idle, waiting for I/O and stolen from one `cpu` line. User and nice already include guest time."""
    f = [int(x) / CLOCK_TICKS for x in line.split()[1:9]]
    f += [0.0] * (8 - len(f))
    user, nice, system, idle, iowait, irq, softirq, steal = f
    return user + nice + system + irq + softirq, idle, iowait, steal


def mean_mhz(root: Path) -> float | None:
    """Mean current clock of the cores from cpufreq, else from /proc/cpuinfo (in a VM usually the nominal clock)."""
    khz = [read_text(path) for path in sorted(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))]
    values = [int(text) / 1000 for text in khz if text and text.isdigit()]
    if not values:
        lines = (read_text(root / "proc/cpuinfo") or "").splitlines()
        values = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
    return sum(values) / len(values) if values else None


def _affinity(pid: int, root: Path = Path("/")) -> frozenset[int]:
    """Online cores in the process's affinity, which the kernel keeps inside its cpuset. Empty once the process is gone."""
    for line in (read_text(root / f"proc/{pid}/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            allowed = parse_cpu_list(line.partition(":")[2])
            online = parse_cpu_list(read_text(root / "sys/devices/system/cpu/online") or "")
            return allowed & online if online else allowed
    if root == Path("/"):  # sandboxes like gVisor omit the line but answer the call
        with contextlib.suppress(OSError, AttributeError):
            return frozenset(os.sched_getaffinity(pid))
    return frozenset()


def allowed_cores(
    pid: int, root: Path = Path("/"), reader: CgroupReader | None = None, beside: Sequence[int] = ()
) -> float | None:
    """Number of cores that a process and those in `beside` may use together: the smaller of their affinity and the first one's CPU quota.

    None once they are gone.
    """
    affinity = len(frozenset().union(*(_affinity(each, root) for each in (pid, *beside))))
    if not affinity:
        return None
    state = (reader or CgroupReader(root)).state_of(pid)
    quota = state.cpu.quota_cores if state and state.cpu else None
    return float(affinity) if quota is None else min(float(affinity), quota)


class CpuProbe:
    """Reports as the job's cores those of its main process `job_pid`, or those of the ranks in `tree` that it did not start."""

    name = "cpu"

    def __init__(self, root: Path = Path("/"), *, job_pid: int | None = None, tree: ProcessTree | None = None) -> None:
        self._root = root
        self._job_pid = job_pid
        self._tree = tree
        self._files = KeptFiles(root)
        self._reader = CgroupReader(root)
        self._gaps = GapsOnce()
        self._cores_due_ns: int | None = None
        self._freq_due_ns: int | None = None

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        samples: list[Sample] = []
        self._read_times(now_ns, samples)
        self._read_load(samples)
        self._read_freq(now_ns, samples)
        ranks = [target.pid for target in targets if target.role == "rank"]
        adopted = [pid for pid in ranks if self._tree is not None and self._tree.adopted(pid)]
        main_pid = self._job_pid or next(iter(ranks), None)
        asked = adopted or ([] if main_pid is None else [main_pid])
        if asked:
            self._reader.begin_tick(now_ns)
            cores = allowed_cores(asked[0], self._root, self._reader, asked[1:])
            if cores is not None:
                samples.append(Sample("cpu.allowed_cores", "job", cores))
            elif (self._root / f"proc/{asked[0]}/status").exists():
                self._gaps.add("cpu.allowed_cores", "job", "the kernel does not report which CPUs the job may use")
            given = allowed_cores(os.getpid(), self._root, self._reader)
            if given is not None:
                samples.append(Sample("cpu.given_cores", "job", given))
        return Reading(tuple(samples), self._gaps.take())

    def _read_times(self, now_ns: int, samples: list[Sample]) -> None:
        try:
            text = self._files.read(0, "proc/stat", STAT_BYTES)
        except OSError as e:
            metrics = ("cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s", "cpu.cores")
            self._gaps.add(metrics, "host", f"/proc/stat: {e.strerror}")
            return
        cores = text.count(b"\ncpu")
        samples.append(Sample("cpu.cores", "host", float(cores)))
        if not any(parse_cpu_times(text.partition(b"\n")[0])):
            times = ("cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s")
            hint = "sandboxes like gVisor do not provide it: run the advisor on the host"
            self._gaps.add(times, "host", "/proc/stat reads zero", hint)
            return
        with_cores = cores <= MANY_CORES or self._cores_due_ns is None or now_ns >= self._cores_due_ns
        if with_cores:
            self._cores_due_ns = now_ns + CORES_PERIOD_NS
        lines = 1 + cores if with_cores else 1
        for line in text.split(b"\n", lines)[:lines]:
            label = line[3 : line.index(b" ")].decode()
            scope = f"cpu:{label}" if label else "host"
            names = ("cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s")
            samples += [Sample(name, scope, value) for name, value in zip(names, parse_cpu_times(line), strict=True)]

    def _read_load(self, samples: list[Sample]) -> None:
        try:
            f = self._files.read(0, "proc/loadavg").split()
        except OSError as e:
            self._gaps.add(("cpu.load1", "cpu.runnable"), "host", f"/proc/loadavg: {e.strerror}")
            return
        samples.append(Sample("cpu.load1", "host", float(f[0])))
        samples.append(Sample("cpu.runnable", "host", float(f[3].partition(b"/")[0])))

    def _read_freq(self, now_ns: int, samples: list[Sample]) -> None:
        if self._freq_due_ns is not None and now_ns < self._freq_due_ns:
            return
        self._freq_due_ns = now_ns + FREQ_PERIOD_NS
        mhz = mean_mhz(self._root)
        if mhz is None:
            self._gaps.add(
                "cpu.freq_mhz",
                "host",
                "neither cpufreq nor /proc/cpuinfo reports a clock",
                "usual on Arm virtual machines",
            )
        else:
            samples.append(Sample("cpu.freq_mhz", "host", mhz))
