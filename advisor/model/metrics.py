"""The catalogue of raw samples: every number that a host probe may report, with its unit, kind and scopes.

A `level` holds for one instant. A `counter` only grows; its increase in an interval is the difference of two readings, so nothing is lost
between samples. A counter that falls was reset.

Scopes are strings: `host`, `job`, `cpu:3`, `disk:nvme0n1`, `net:eth0`, `gpu:0`, `mount:/data`; `pid:4711` for a process and for its control
group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["level", "counter"]


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    unit: str
    kind: Kind
    scope: str  # kind of scope: host, cpu, disk, mount, net, gpu, pid, job
    what: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of a metric. All samples of a tick share the tick's time (monotonic ns)."""

    metric: str
    scope: str
    value: float


@dataclass(frozen=True, slots=True)
class ProbeGap:
    """A measurement that is missing, with the reason. It is never shown as zero or as "fine"."""

    metric: str
    scope: str
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The readings of one probe at one tick."""

    samples: tuple[Sample, ...] = ()
    gaps: tuple[ProbeGap, ...] = ()


def _level(name: str, unit: str, scope: str, what: str) -> Metric:
    return Metric(name, unit, "level", scope, what)


def _counter(name: str, unit: str, scope: str, what: str) -> Metric:
    return Metric(name, unit, "counter", scope, what)


_METRICS = (
    _counter("cpu.busy_s", "s", "host|cpu", "user, nice, system, irq and softirq time; host: all cores together"),
    _counter("cpu.idle_s", "s", "host|cpu", "idle time without iowait"),
    _counter("cpu.iowait_s", "s", "host|cpu", "idle with I/O pending; reads 0 on FUSE and NFS"),
    _counter("cpu.steal_s", "s", "host|cpu", "the hypervisor ran another virtual machine"),
    _level("cpu.load1", "tasks", "host", "load average over one minute"),
    _level("cpu.runnable", "tasks", "host", "tasks running or runnable right now"),
    _level("cpu.cores", "cores", "host", "cores the kernel has online"),
    _level("cpu.allowed_cores", "cores", "job", "cores this job may use: affinity and cgroup quota, the smaller"),
    _level(
        "cpu.given_cores",
        "cores",
        "job",
        "cores the advisor may use, which the job could use too unless it bound itself to fewer",
    ),
    _level("cpu.freq_mhz", "MHz", "host", "mean current clock of the cores"),
    _level("cgroup.quota_cores", "cores", "pid", "the tightest CPU quota above this process; absent: none"),
    _counter("cgroup.throttled_s", "s", "pid", "time the tasks of the quota's cgroup were throttled"),
    _counter("cgroup.periods", "periods", "pid", "enforcement periods of that cgroup"),
    _counter("cgroup.throttled_periods", "periods", "pid", "periods in which it ran out"),
    _level("cgroup.mem_limit_bytes", "bytes", "pid", "the tightest memory limit above this process; absent: none"),
    _level("cgroup.mem_used_bytes", "bytes", "pid", "charged to that cgroup, page cache included"),
    _level(
        "cgroup.mem_cache_bytes",
        "bytes",
        "pid",
        "of those, page cache and caches of the kernel that can be dropped; absent: no limit",
    ),
    _counter("cgroup.oom_kills", "kills", "pid", "processes of that cgroup the OOM killer took"),
    _level("mem.total_bytes", "bytes", "host", "physical memory"),
    _level("mem.available_bytes", "bytes", "host", "obtainable without swapping"),
    _level("mem.cached_bytes", "bytes", "host", "page cache"),
    _counter("mem.swap_in_bytes", "bytes", "host", "read back from swap"),
    _level("mem.shm_total_bytes", "bytes", "host", "size of /dev/shm"),
    _level("mem.shm_used_bytes", "bytes", "host", "used in /dev/shm"),
    _counter("mem.oom_kills", "kills", "host", "OOM kills of the whole machine"),
    _counter("psi.cpu_some_s", "s", "host", "time in which some task waited for a CPU"),
    _counter("psi.mem_some_s", "s", "host", "time in which some task waited for memory"),
    _counter("psi.io_some_s", "s", "host", "time in which some task waited for I/O"),
    _counter("disk.read_bytes", "bytes", "disk", "read from the device"),
    _counter("disk.reads", "reads", "disk", "reads completed"),
    _counter("disk.read_wait_s", "s", "disk", "request-seconds of reads; over the reads: how long one took"),
    _counter("disk.write_bytes", "bytes", "disk", "written to the device"),
    _counter("disk.writes", "writes", "disk", "writes completed"),
    _counter("disk.busy_s", "s", "disk", "time with at least one request in flight"),
    _counter("disk.queue_s", "s", "disk", "request-seconds in flight; per second: mean queue length"),
    _level(
        "disk.limit_read_bytes_s",
        "bytes/s",
        "disk",
        "the tightest limit on reading that a control group of the job sets on this disk; absent: none",
    ),
    _level("disk.limit_reads_s", "reads/s", "disk", "the same, for the number of reads"),
    _counter("disk.volume_exceeded_s", "s", "disk", "time for which the provider throttled this volume"),
    _counter("disk.instance_exceeded_s", "s", "disk", "time for which the provider throttled the machine's disks"),
    _counter("mount.read_bytes", "bytes", "mount", "read from the server of a network file system"),
    _counter("mount.asked_bytes", "bytes", "mount", "asked of it by programs, its page cache included"),
    _counter("mount.reads", "reads", "mount", "read requests to the server"),
    _counter("mount.read_wait_s", "s", "mount", "request-seconds of these reads"),
    _counter("data.files", "files", "mount", "different files seen open for reading by processes that make batches"),
    _counter("net.in_exceeded", "packets", "net", "packets queued or dropped because the provider's limit was passed"),
    _counter("net.rx_bytes", "bytes", "net", "received"),
    _counter("net.tx_bytes", "bytes", "net", "sent"),
    _level("net.speed_mbps", "Mbit/s", "net", "link speed as the driver reports it"),
    _counter("job.cpu_s", "s", "job", "CPU time of the job's whole process tree, including ended processes"),
    _level("job.processes", "processes", "job", "live processes of the job"),
    _counter("proc.cpu_s", "s", "pid", "CPU time of all threads"),
    _counter("proc.run_delay_s", "s", "pid", "main thread runnable without a core"),
    _counter("proc.threads_delay_s", "s", "pid", "all its threads runnable without a core, summed; ranks only"),
    _level("proc.rss_bytes", "bytes", "pid", "resident memory"),
    _level(
        "proc.held_bytes",
        "bytes",
        "pid",
        "resident memory that no file backs, shared memory included: it cannot be dropped",
    ),
    _level(
        "proc.private_bytes",
        "bytes",
        "pid",
        "private pages of one worker of the job: its copies of what existed before the fork",
    ),
    _level("proc.threads", "threads", "pid", "threads"),
    _counter("proc.read_bytes", "bytes", "pid", "caused to be read from storage"),
    _counter("proc.write_bytes", "bytes", "pid", "caused to be written to storage"),
    _counter("proc.rchar_bytes", "bytes", "pid", "returned by read calls, page cache included"),
    _counter("proc.involuntary_switches", "switches", "pid", "context switches forced on the process"),
    _level("gpu.util_pct", "%", "gpu", "time some kernel was resident; never evidence of a cause"),
    _level("gpu.mem_used_bytes", "bytes", "gpu|mig", "device memory in use"),
    _level("gpu.mem_total_bytes", "bytes", "gpu|mig", "device memory"),
    _level("gpu.power_w", "W", "gpu", "board power"),
    _level("gpu.power_limit_w", "W", "gpu", "enforced power limit"),
    _counter("gpu.energy_j", "J", "gpu", "since the driver was loaded"),
    _level("gpu.sm_clock_mhz", "MHz", "gpu", "SM clock"),
    _level("gpu.sm_clock_max_mhz", "MHz", "gpu", "highest SM clock of this board"),
    _level("gpu.mem_clock_mhz", "MHz", "gpu", "memory clock"),
    _level("gpu.temp_c", "°C", "gpu", "GPU temperature"),
    _level("gpu.clock_reasons", "", "gpu", "NVML's clock event reasons, a set of bits"),
    _counter("gpu.power_cap_s", "s", "gpu", "clocks lowered to stay within the power limit"),
    _counter("gpu.sw_thermal_s", "s", "gpu", "clocks lowered by the driver for the temperature"),
    _counter("gpu.hw_thermal_s", "s", "gpu", "clocks at least halved by the board for the temperature"),
    _counter("gpu.power_brake_s", "s", "gpu", "clocks at least halved by a signal of the power supply"),
    _counter("gpu.thermal_s", "s", "gpu", "any thermal limit, of drivers that do not split it"),
    _level("gpu.pcie_gen", "", "gpu", "PCIe generation of the link now; idle links fall back to 1"),
    _level("gpu.pcie_width", "lanes", "gpu", "PCIe lanes of the link now"),
    _counter("gpu.pcie_rx_bytes", "bytes", "gpu", "received over PCIe"),
    _counter("gpu.pcie_tx_bytes", "bytes", "gpu", "sent over PCIe"),
    _level("gpu.pcie_rx_bytes_per_s", "bytes/s", "gpu", "received over PCIe, where no counter is kept"),
    _level("gpu.pcie_tx_bytes_per_s", "bytes/s", "gpu", "sent over PCIe, where no counter is kept"),
    _counter("gpu.pcie_replays", "replays", "gpu", "PCIe packets sent again"),
    _level("gpu.nvlinks_active", "links", "gpu", "NVLinks that are up"),
    _counter("gpu.nvlink_rx_bytes", "bytes", "gpu", "received over all NVLinks"),
    _counter("gpu.nvlink_tx_bytes", "bytes", "gpu", "sent over all NVLinks"),
    _level("gpu.nvlink_rx_bytes_per_s", "bytes/s", "gpu", "received over all NVLinks, by GPM"),
    _level("gpu.nvlink_tx_bytes_per_s", "bytes/s", "gpu", "sent over all NVLinks, by GPM"),
    _counter("gpu.nvlink_crc_errors", "errors", "gpu", "damaged packets on all NVLinks"),
    _counter("gpu.nvlink_recoveries", "events", "gpu", "replays and recoveries of all NVLinks"),
    _counter("gpu.ecc_corrected", "errors", "gpu", "corrected memory errors since the driver was loaded"),
    _counter("gpu.ecc_uncorrected", "errors", "gpu", "uncorrectable memory errors since then"),
    _counter("gpu.ecc_lifetime_corrected", "errors", "gpu", "corrected memory errors of the board's life"),
    _counter("gpu.ecc_lifetime_uncorrected", "errors", "gpu", "uncorrectable memory errors of its life"),
    _counter("gpu.rows_remapped_corrected", "rows", "gpu", "memory rows replaced after corrected errors"),
    _counter("gpu.rows_remapped_uncorrected", "rows", "gpu", "memory rows replaced after uncorrectable ones"),
    _level("gpu.row_remap_pending", "", "gpu", "1: a row is replaced at the next reset"),
    _level("gpu.row_remap_failed", "", "gpu", "1: a row could not be replaced"),
    _level(
        "gpu.recovery_action",
        "",
        "gpu",
        "what the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 and 4 drain, 5 NVLink domain, 6 bus reset, 7 reboot",
    ),
    _counter("gpu.xids", "reports", "gpu", "Xids reported since the recording began"),
    _level("gpu.xid", "", "gpu", "number of an Xid, when it was reported"),
    _level("gpu.lost", "", "gpu", "1: the driver has lost the GPU or asks for its reset"),
    _level("gpu.own_processes", "processes", "gpu", "processes of this job that compute on it"),
    _level("gpu.foreign_processes", "processes", "gpu", "others that compute on it"),
    _level("gpu.foreign_mem_bytes", "bytes", "gpu", "device memory of those others"),
    _level("gpu.foreign_sm_pct", "%", "gpu", "SM time of those others"),
    _level("gpu.sm_active_pct", "%", "gpu", "SMs that had work (GPM)"),
    _level("gpu.sm_occupancy_pct", "%", "gpu", "warps of those that would fit (GPM)"),
    _level("gpu.tensor_active_pct", "%", "gpu", "tensor cores at work (GPM)"),
    _level("gpu.dram_active_pct", "%", "gpu", "device memory bandwidth in use (GPM)"),
    _counter("gpu.probe_s", "s", "host", "wall time spent querying the driver"),
)
SAMPLES = {metric.name: metric for metric in _METRICS}
