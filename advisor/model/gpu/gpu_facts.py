"""The GPUs of a job's host as the analysis sees them: their properties, connections and memory."""

from __future__ import annotations

from dataclasses import dataclass

# Xids that a program causes itself: a bad kernel or access (13, 31), a program that ended or was stopped (43, 45).
PROGRAMS_XIDS = frozenset({13, 31, 43, 45})


@dataclass(frozen=True, slots=True)
class Xid:
    t_s: float  # since the job's start
    code: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """The constant properties of one GPU and the `ranks` that run on it. None: unknown."""

    index: int
    name: str
    uuid: str = ""
    ranks: tuple[int, ...] = ()
    mig: bool = False
    ecc: bool | None = None  # True: memory errors are counted
    mem_total_bytes: float | None = None
    power_limit_default_w: float | None = None
    sm_clock_max_mhz: float | None = None
    pcie_gen_max: int | None = None  # of GPU and slot; the highest among GPUs of this model on the host
    pcie_width_max: int | None = None
    pcie_width_made: int | None = None  # lanes that its maker gave this model, by a table of data sheets
    nvlinks: int | None = None
    nvlink_switched: bool | None = None
    numa_node: int | None = None
    cpus: frozenset[int] = frozenset()
    xids: tuple[Xid, ...] = ()
    instances: tuple[str, ...] = ()  # profiles of its MIG instances, in the driver's order
    first_of: tuple[int, ...] = ()  # ranks that have it as current device; a rank may use several GPUs
    host: str = ""  # set if the job ran on several hosts; `index` then counts through all of them
    index_on_host: int | None = None  # the index for commands on that host
    made_up_rank: bool = False  # True in a triage: no job runs, and each GPU gets a rank that is never shown

    @property
    def own_index(self) -> int:
        return self.index if self.index_on_host is None else self.index_on_host

    @property
    def pcie_width_due(self) -> int | None:
        """Lanes that its link should have: the driver's maximum is that of the slot, if the slot has fewer than the board."""
        return max((self.pcie_width_max or 0, self.pcie_width_made or 0)) or None

    def is_like(self, other: Gpu) -> bool:
        """True if both GPUs are of the same model and in the same machine."""
        return (self.name, self.host) == (other.name, other.host)


@dataclass(frozen=True, slots=True)
class GpuPath:
    """The connection of two GPUs. `path`: NV12, PIX, PXB, PHB, NODE or SYS; `p2p`: `ok` or nvidia-smi's reason. "?": unknown."""

    a: int
    b: int
    path: str
    p2p: str


@dataclass(frozen=True, slots=True)
class GpuMemoryTrend:
    """Memory that one rank's tensors hold on its GPU at the end of steps, after the warm-up."""

    rank: int
    gpu: int | None
    steps: float
    seconds: float
    thirds_mb: tuple[float, float, float]  # median of each third of the time
    mb_per_step: float
    left_mb: float | None  # until the GPU is full
    batch_times: float = 1.0  # batch size in the last third over that in the first

    @property
    def growth(self) -> float:
        """Growth as a share of the first third's median."""
        return self.mb_per_step * self.steps / max(self.thirds_mb[0], 1e-9)


@dataclass(frozen=True, slots=True)
class GpuView:
    """Everything known about the GPUs of the job's host."""

    devices: tuple[Gpu, ...] = ()
    paths: tuple[GpuPath, ...] = ()
    memory: tuple[GpuMemoryTrend, ...] = ()
    unmonitored: tuple[int, ...] = ()  # ranks that train on a GPU about which the driver reported nothing
    why_unmonitored: str = ""

    @property
    def used(self) -> tuple[Gpu, ...]:
        """GPUs that have ranks."""
        return tuple(gpu for gpu in self.devices if gpu.ranks)

    def get(self, index: int) -> Gpu | None:
        return next((gpu for gpu in self.devices if gpu.index == index), None)

    def path(self, one: int, other: int) -> GpuPath | None:
        return next((p for p in self.paths if {p.a, p.b} == {one, other}), None)
