"""The GPUs of a job's host as the analysis knows them, and the names of the numbers that belong to them."""

from __future__ import annotations

from dataclasses import dataclass

# As `model.values.VALUES`. Of one GPU (scope "gpu:N") over the steady steps unless they say otherwise; N is NVML's index.
GPU_VALUES: dict[str, tuple[str, str]] = {
    "gpu.idle_beside": ("GPUs", "that had nothing to do while ranks trained, none of them on a GPU"),
    "gpu.idle": ("", "1: none of the job's, and it had nothing to do; 0: somebody else's work was on it"),
    "gpu.throttled_share": ("", "share of the time in which heat or a power brake held its clocks down"),
    "gpu.sw_thermal_share": ("", "of it, lowered by the driver for the temperature"),
    "gpu.hw_thermal_share": ("", "of it, at least halved by the board for the temperature"),
    "gpu.power_brake_share": ("", "of it, at least halved by a signal of the power supply"),
    "gpu.power_capped_share": ("", "share of the time in which the power limit held its clocks down"),
    "gpu.clock_mhz": ("MHz", "SM clock while it had work"),
    "gpu.peers_clock_mhz": ("MHz", "the same of the job's other GPUs of this model, median"),
    "gpu.temp_c": ("°C", "the hottest it was"),
    "gpu.power_w": ("W", "board power"),
    "gpu.power_limit_w": ("W", "power limit in force"),
    "gpu.mem_used_mb": ("MB", "memory in use, by anybody"),
    "gpu.util_share": ("", "time some kernel was resident; never evidence of a cause"),
    "gpu.sm_active_share": ("", "SMs that had work, where the GPU counts it"),
    "gpu.tensor_active_share": ("", "tensor cores at work, where the GPU counts it"),
    "gpu.dram_active_share": ("", "device memory bandwidth in use, where the GPU counts it"),
    "gpu.pcie_gen": ("", "PCIe generation of the link while it had work"),
    "gpu.pcie_width": ("lanes", "PCIe lanes of the link while it had work"),
    "gpu.pcie_rx_mb_per_s": ("MB/s", "received over PCIe"),
    "gpu.nvlink_mb_per_s": ("MB/s", "received over all NVLinks"),
    "gpu.nvlinks_active": ("links", "NVLinks that were up, the fewest over the whole run"),
    "gpu.nvlinks_due": ("links", "NVLinks that should be up"),
    "gpu.nvlink_crc_per_s": ("errors/s", "damaged packets on its NVLinks, over the whole run"),
    "gpu.nvlink_recoveries": ("events", "replays and recoveries of its NVLinks, over the whole run"),
    "gpu.errors_watched": ("kinds", "kinds of errors that could be looked for, of six"),
    "gpu.uncorrected_errors": ("errors", "uncorrectable memory errors that came in the run"),
    "gpu.row_remap_pending": ("", "1: a memory row waits for its replacement"),
    "gpu.row_remap_failed": ("", "1: a memory row could not be replaced"),
    "gpu.recovery_action": ("", "what the driver asks for: 0 nothing"),
    "gpu.hardware_xids": ("reports", "Xids in the run that no program brings about by itself"),
    "gpu.lost": ("", "1: the driver lost it, or asks for its reset"),
    "gpu.foreign_processes": ("processes", "processes of others that computed on it"),
    "gpu.foreign_mem_mb": ("MB", "their memory, the most"),
    "gpu.foreign_sm_share": ("", "their share of its SM time"),
    # Of a rank.
    "gpu.near_cpu_share": ("", "of the CPUs this rank may run on, those near its GPU"),
    "gpu.reserved_share": ("", "of the GPU's memory, what torch's allocator holds at most"),
    "gpu.peak_share": ("", "of the GPU's memory, what tensors took at most"),
    "gpu.alloc_retries": ("retries", "allocations in the steady steps that emptied torch's cache first"),
    "gpu.fragmented_share": (
        "",
        "of what torch's allocator holds, what tensors never took at once: 1 - peak / reserved",
    ),
    "gpu.memory_watched": ("readings", "looks at torch's allocator in the steady steps"),
    # Of the job.
    "gpu.watts": ("W", "power of the job's GPUs together, by their energy counters or the power they tell"),
    "gpu.joules_per_sample": ("J", "energy of the job's GPUs for each sample"),
    "gpu.pairs": ("pairs", "pairs of the job's GPUs whose path is known"),
}

# Xids that a program brings about by itself: a bad kernel or access (13, 31), a program that ended or was stopped (43, 45).
PROGRAMS_XIDS = frozenset({13, 31, 43, 45})


@dataclass(frozen=True, slots=True)
class Xid:
    t_s: float  # since the job's start
    code: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """What does not change about one GPU; `ranks` run on it. None: not told."""

    index: int
    name: str
    uuid: str = ""
    ranks: tuple[int, ...] = ()
    mig: bool = False
    ecc: bool | None = None  # memory errors are counted
    mem_total_bytes: float | None = None
    power_limit_default_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_gen_max: int | None = None  # what GPU and slot can do; the best of its kind on this host counts
    pcie_width_max: int | None = None
    nvlinks: int | None = None
    nvlink_switched: bool | None = None
    numa_node: int | None = None
    cpus: frozenset[int] = frozenset()
    xids: tuple[Xid, ...] = ()
    instances: tuple[str, ...] = ()  # profiles of its MIG instances, in the driver's order
    first_of: tuple[int, ...] = ()  # of its ranks, those whose current device it is; one rank may drive several
    host: str = ""  # which, where the job ran on several: their GPUs are numbered through
    index_on_host: int | None = None  # the number that a command on that host needs

    @property
    def own_index(self) -> int:
        return self.index if self.index_on_host is None else self.index_on_host

    def is_like(self, other: Gpu) -> bool:
        """Of the same model, in the same machine."""
        return (self.name, self.host) == (other.name, other.host)


@dataclass(frozen=True, slots=True)
class GpuPath:
    """How two GPUs reach each other: NV12, PIX, PXB, PHB, NODE, SYS; and OK, or as nvidia-smi says why not. "?": unknown."""

    a: int
    b: int
    path: str
    p2p: str


@dataclass(frozen=True, slots=True)
class GpuMemoryTrend:
    """What tensors of one rank hold on its GPU at the end of steps, after the warm-up."""

    rank: int
    gpu: int | None
    steps: float
    seconds: float
    thirds_mb: tuple[float, float, float]  # median of each third of the time
    mb_per_step: float
    left_mb: float | None  # until the GPU is full
    batch_times: float = 1.0  # as large as in the first third are batches in the last one

    @property
    def growth(self) -> float:
        """Share by which it grew."""
        return self.mb_per_step * self.steps / max(self.thirds_mb[0], 1e-9)


@dataclass(frozen=True, slots=True)
class GpuView:
    """All that is known of the GPUs of the job's host."""

    devices: tuple[Gpu, ...] = ()
    paths: tuple[GpuPath, ...] = ()
    memory: tuple[GpuMemoryTrend, ...] = ()
    unseen: tuple[int, ...] = ()  # ranks that train on a GPU of which the driver told nothing
    why_unseen: str = ""

    @property
    def used(self) -> tuple[Gpu, ...]:
        """Those that ranks run on."""
        return tuple(gpu for gpu in self.devices if gpu.ranks)

    def get(self, index: int) -> Gpu | None:
        return next((gpu for gpu in self.devices if gpu.index == index), None)

    def path(self, one: int, other: int) -> GpuPath | None:
        return next((p for p in self.paths if {p.a, p.b} == {one, other}), None)
