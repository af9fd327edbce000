"""The GPUs of a job's host as the analysis knows them, and the names of the numbers that belong to them."""

from __future__ import annotations

from dataclasses import dataclass

# Xids that a program brings about by itself: a bad kernel or access (13, 31), a program that ended or was stopped (43, 45).
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
    made_up_rank: bool = False  # no job runs: a triage gives each GPU a rank, which is named nowhere

    @property
    def own_index(self) -> int:
        return self.index if self.index_on_host is None else self.index_on_host

    def is_like(self, other: Gpu) -> bool:
        """True if both GPUs are of the same model and in the same machine."""
        return (self.name, self.host) == (other.name, other.host)


@dataclass(frozen=True, slots=True)
class GpuPath:
    """The path between two GPUs: NV12, PIX, PXB, PHB, NODE, SYS; `ok`, or nvidia-smi's reason. "?": unknown."""

    a: int
    b: int
    path: str
    p2p: str


@dataclass(frozen=True, slots=True)
class GpuMemoryTrend:
    """Memory that one rank's tensors hold on its GPU at step ends, after the warm-up."""

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
    unseen: tuple[int, ...] = ()  # ranks that train on a GPU about which the driver reported nothing
    why_unseen: str = ""

    @property
    def used(self) -> tuple[Gpu, ...]:
        """GPUs that have ranks."""
        return tuple(gpu for gpu in self.devices if gpu.ranks)

    def get(self, index: int) -> Gpu | None:
        return next((gpu for gpu in self.devices if gpu.index == index), None)

    def path(self, one: int, other: int) -> GpuPath | None:
        return next((p for p in self.paths if {p.a, p.b} == {one, other}), None)
