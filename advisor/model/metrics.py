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


def _m(name: str, unit: str, kind: Kind, scope: str, what: str) -> tuple[str, Metric]:
    return name, Metric(name, unit, kind, scope, what)


SAMPLES: dict[str, Metric] = dict(
    (
        _m(
            "cpu.busy_s",
            "s",
            "counter",
            "host|cpu",
            "user, nice, system, irq and softirq time; host: all cores together",
        ),
        _m("cpu.idle_s", "s", "counter", "host|cpu", "idle time without iowait"),
        _m("cpu.iowait_s", "s", "counter", "host|cpu", "idle with I/O pending; reads 0 on FUSE and NFS"),
        _m("cpu.steal_s", "s", "counter", "host|cpu", "the hypervisor ran another virtual machine"),
        _m("cpu.load1", "tasks", "level", "host", "load average over one minute"),
        _m("cpu.runnable", "tasks", "level", "host", "tasks running or runnable right now"),
        _m("cpu.cores", "cores", "level", "host", "cores the kernel has online"),
        _m(
            "cpu.allowed_cores",
            "cores",
            "level",
            "job",
            "cores this job may use: affinity and cgroup quota, the smaller",
        ),
        _m(
            "cpu.given_cores",
            "cores",
            "level",
            "job",
            "cores the advisor may use, which the job could use too unless it bound itself to fewer",
        ),
        _m("cpu.freq_mhz", "MHz", "level", "host", "mean current clock of the cores"),
        _m("cgroup.quota_cores", "cores", "level", "pid", "the tightest CPU quota above this process; absent: none"),
        _m("cgroup.throttled_s", "s", "counter", "pid", "time the tasks of the quota's cgroup were throttled"),
        _m("cgroup.periods", "periods", "counter", "pid", "enforcement periods of that cgroup"),
        _m("cgroup.throttled_periods", "periods", "counter", "pid", "periods in which it ran out"),
        _m(
            "cgroup.mem_limit_bytes",
            "bytes",
            "level",
            "pid",
            "the tightest memory limit above this process; absent: none",
        ),
        _m("cgroup.mem_used_bytes", "bytes", "level", "pid", "charged to that cgroup, page cache included"),
        _m(
            "cgroup.mem_cache_bytes",
            "bytes",
            "level",
            "pid",
            "of those, page cache and caches of the kernel that can be dropped; absent: no limit",
        ),
        _m("cgroup.oom_kills", "kills", "counter", "pid", "processes of that cgroup the OOM killer took"),
        _m("mem.total_bytes", "bytes", "level", "host", "physical memory"),
        _m("mem.available_bytes", "bytes", "level", "host", "obtainable without swapping"),
        _m("mem.cached_bytes", "bytes", "level", "host", "page cache"),
        _m("mem.swap_in_bytes", "bytes", "counter", "host", "read back from swap"),
        _m("mem.shm_total_bytes", "bytes", "level", "host", "size of /dev/shm"),
        _m("mem.shm_used_bytes", "bytes", "level", "host", "used in /dev/shm"),
        _m("mem.oom_kills", "kills", "counter", "host", "OOM kills of the whole machine"),
        _m("psi.cpu_some_s", "s", "counter", "host", "time in which some task waited for a CPU"),
        _m("psi.mem_some_s", "s", "counter", "host", "time in which some task waited for memory"),
        _m("psi.io_some_s", "s", "counter", "host", "time in which some task waited for I/O"),
        _m("disk.read_bytes", "bytes", "counter", "disk", "read from the device"),
        _m("disk.reads", "reads", "counter", "disk", "reads completed"),
        _m("disk.read_wait_s", "s", "counter", "disk", "request-seconds of reads; over the reads: how long one took"),
        _m("disk.write_bytes", "bytes", "counter", "disk", "written to the device"),
        _m("disk.writes", "writes", "counter", "disk", "writes completed"),
        _m("disk.busy_s", "s", "counter", "disk", "time with at least one request in flight"),
        _m("disk.queue_s", "s", "counter", "disk", "request-seconds in flight; per second: mean queue length"),
        _m(
            "disk.limit_read_bytes_s",
            "bytes/s",
            "level",
            "disk",
            "the tightest limit on reading that a control group of the job sets on this disk; absent: none",
        ),
        _m("disk.limit_reads_s", "reads/s", "level", "disk", "the same, for the number of reads"),
        _m("disk.volume_exceeded_s", "s", "counter", "disk", "time for which the provider throttled this volume"),
        _m(
            "disk.instance_exceeded_s",
            "s",
            "counter",
            "disk",
            "time for which the provider throttled the machine's disks",
        ),
        _m("mount.read_bytes", "bytes", "counter", "mount", "read from the server of a network file system"),
        _m("mount.asked_bytes", "bytes", "counter", "mount", "asked of it by programs, its page cache included"),
        _m("mount.reads", "reads", "counter", "mount", "read requests to the server"),
        _m("mount.read_wait_s", "s", "counter", "mount", "request-seconds of these reads"),
        _m(
            "data.files",
            "files",
            "counter",
            "mount",
            "different files seen open for reading by processes that make batches",
        ),
        _m(
            "net.in_exceeded",
            "packets",
            "counter",
            "net",
            "packets queued or dropped because the provider's limit was passed",
        ),
        _m("net.rx_bytes", "bytes", "counter", "net", "received"),
        _m("net.tx_bytes", "bytes", "counter", "net", "sent"),
        _m("net.speed_mbps", "Mbit/s", "level", "net", "link speed as the driver reports it"),
        _m("job.cpu_s", "s", "counter", "job", "CPU time of the job's whole process tree, including ended processes"),
        _m("job.processes", "processes", "level", "job", "live processes of the job"),
        _m("proc.cpu_s", "s", "counter", "pid", "CPU time of all threads"),
        _m("proc.run_delay_s", "s", "counter", "pid", "main thread runnable without a core"),
        _m(
            "proc.threads_delay_s", "s", "counter", "pid", "all its threads runnable without a core, summed; ranks only"
        ),
        _m("proc.rss_bytes", "bytes", "level", "pid", "resident memory"),
        _m(
            "proc.held_bytes",
            "bytes",
            "level",
            "pid",
            "resident memory that no file backs, shared memory included: it cannot be dropped",
        ),
        _m(
            "proc.private_bytes",
            "bytes",
            "level",
            "pid",
            "private pages of one worker of the job: its copies of what existed before the fork",
        ),
        _m("proc.threads", "threads", "level", "pid", "threads"),
        _m("proc.read_bytes", "bytes", "counter", "pid", "caused to be read from storage"),
        _m("proc.write_bytes", "bytes", "counter", "pid", "caused to be written to storage"),
        _m("proc.rchar_bytes", "bytes", "counter", "pid", "returned by read calls, page cache included"),
        _m("proc.involuntary_switches", "switches", "counter", "pid", "context switches forced on the process"),
        _m("gpu.util_pct", "%", "level", "gpu", "time some kernel was resident; never evidence of a cause"),
        _m("gpu.mem_used_bytes", "bytes", "level", "gpu|mig", "device memory in use"),
        _m("gpu.mem_total_bytes", "bytes", "level", "gpu|mig", "device memory"),
        _m("gpu.power_w", "W", "level", "gpu", "board power"),
        _m("gpu.power_limit_w", "W", "level", "gpu", "enforced power limit"),
        _m("gpu.energy_j", "J", "counter", "gpu", "since the driver was loaded"),
        _m("gpu.sm_clock_mhz", "MHz", "level", "gpu", "SM clock"),
        _m("gpu.sm_clock_max_mhz", "MHz", "level", "gpu", "highest SM clock of this board"),
        _m("gpu.mem_clock_mhz", "MHz", "level", "gpu", "memory clock"),
        _m("gpu.temp_c", "°C", "level", "gpu", "GPU temperature"),
        _m("gpu.clock_reasons", "", "level", "gpu", "NVML's clock event reasons, a set of bits"),
        _m("gpu.power_cap_s", "s", "counter", "gpu", "clocks lowered to stay within the power limit"),
        _m("gpu.sw_thermal_s", "s", "counter", "gpu", "clocks lowered by the driver for the temperature"),
        _m("gpu.hw_thermal_s", "s", "counter", "gpu", "clocks at least halved by the board for the temperature"),
        _m("gpu.power_brake_s", "s", "counter", "gpu", "clocks at least halved by a signal of the power supply"),
        _m("gpu.thermal_s", "s", "counter", "gpu", "any thermal limit, of drivers that do not split it"),
        _m("gpu.pcie_gen", "", "level", "gpu", "PCIe generation of the link now; idle links fall back to 1"),
        _m("gpu.pcie_width", "lanes", "level", "gpu", "PCIe lanes of the link now"),
        _m("gpu.pcie_rx_bytes", "bytes", "counter", "gpu", "received over PCIe"),
        _m("gpu.pcie_tx_bytes", "bytes", "counter", "gpu", "sent over PCIe"),
        _m("gpu.pcie_rx_bytes_per_s", "bytes/s", "level", "gpu", "received over PCIe, where no counter is kept"),
        _m("gpu.pcie_tx_bytes_per_s", "bytes/s", "level", "gpu", "sent over PCIe, where no counter is kept"),
        _m("gpu.pcie_replays", "replays", "counter", "gpu", "PCIe packets sent again"),
        _m("gpu.nvlinks_active", "links", "level", "gpu", "NVLinks that are up"),
        _m("gpu.nvlink_rx_bytes", "bytes", "counter", "gpu", "received over all NVLinks"),
        _m("gpu.nvlink_tx_bytes", "bytes", "counter", "gpu", "sent over all NVLinks"),
        _m("gpu.nvlink_rx_bytes_per_s", "bytes/s", "level", "gpu", "received over all NVLinks, by GPM"),
        _m("gpu.nvlink_tx_bytes_per_s", "bytes/s", "level", "gpu", "sent over all NVLinks, by GPM"),
        _m("gpu.nvlink_crc_errors", "errors", "counter", "gpu", "damaged packets on all NVLinks"),
        _m("gpu.nvlink_recoveries", "events", "counter", "gpu", "replays and recoveries of all NVLinks"),
        _m("gpu.ecc_corrected", "errors", "counter", "gpu", "corrected memory errors since the driver was loaded"),
        _m("gpu.ecc_uncorrected", "errors", "counter", "gpu", "uncorrectable memory errors since then"),
        _m("gpu.ecc_lifetime_corrected", "errors", "counter", "gpu", "corrected memory errors of the board's life"),
        _m("gpu.ecc_lifetime_uncorrected", "errors", "counter", "gpu", "uncorrectable memory errors of its life"),
        _m("gpu.rows_remapped_corrected", "rows", "counter", "gpu", "memory rows replaced after corrected errors"),
        _m("gpu.rows_remapped_uncorrected", "rows", "counter", "gpu", "memory rows replaced after uncorrectable ones"),
        _m("gpu.row_remap_pending", "", "level", "gpu", "1: a row is replaced at the next reset"),
        _m("gpu.row_remap_failed", "", "level", "gpu", "1: a row could not be replaced"),
        _m(
            "gpu.recovery_action",
            "",
            "level",
            "gpu",
            "what the driver asks for: 0 nothing, 1 reset, 2 reboot, 3 and 4 drain, 5 NVLink domain, 6 bus reset, 7 reboot",
        ),
        _m("gpu.xids", "reports", "counter", "gpu", "Xids reported since the recording began"),
        _m("gpu.xid", "", "level", "gpu", "number of an Xid, when it was reported"),
        _m("gpu.lost", "", "level", "gpu", "1: the driver has lost the GPU or asks for its reset"),
        _m("gpu.own_processes", "processes", "level", "gpu", "processes of this job that compute on it"),
        _m("gpu.foreign_processes", "processes", "level", "gpu", "others that compute on it"),
        _m("gpu.foreign_mem_bytes", "bytes", "level", "gpu", "device memory of those others"),
        _m("gpu.foreign_sm_pct", "%", "level", "gpu", "SM time of those others"),
        _m("gpu.sm_active_pct", "%", "level", "gpu", "SMs that had work (GPM)"),
        _m("gpu.sm_occupancy_pct", "%", "level", "gpu", "warps of those that would fit (GPM)"),
        _m("gpu.tensor_active_pct", "%", "level", "gpu", "tensor cores at work (GPM)"),
        _m("gpu.dram_active_pct", "%", "level", "gpu", "device memory bandwidth in use (GPM)"),
        _m("gpu.probe_s", "s", "counter", "host", "wall time spent querying the driver"),
    )
)
