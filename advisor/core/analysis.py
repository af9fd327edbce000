"""What a recording means in numbers, before anybody judges them: the only thing that rules read."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.core.feed import Feed
from advisor.core.gpus import GPU_VALUES, GpuView
from advisor.core.kernels import KERNEL_VALUES
from advisor.core.nccl import NcclFacts
from advisor.core.out_of_memory import OutOfMemory
from advisor.core.pace import PACE_VALUES, Habits, Holder
from advisor.core.recording import Meta
from advisor.core.report import (
    Budget,
    Capacity,
    GpuStrip,
    HostStrip,
    NodeStrip,
    Overhead,
    RankStrip,
    Segment,
    StepTime,
    Throughput,
    TimelinePoint,
)
from advisor.core.roofline import ROOFLINE_VALUES
from advisor.core.sample_cost import SAMPLE_VALUES, SampleCost, SampleLine, SharedLock
from advisor.core.step_model import StepModel
from advisor.core.storage import STORAGE_VALUES, DataMount
from advisor.core.worker_model import Forecast, WorkerModel

JOB = "job"
_STOPPED_CODES = (124, 130, 143)  # of `timeout`, and of a shell whose command ended by SIGINT or SIGTERM
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)  # nobody sends these
_INTERRUPTED_S = 5.0  # within which all of an interrupted job has gone; torch waits as long for its loaders' workers

# Every value a rule may ask for: name -> (unit, what it is). Values of a rank have scope "rank:N", of the whole job "job".
VALUES: dict[str, tuple[str, str]] = {
    "step.time_s": ("s", "mean time of a steady step"),
    "step.steady": ("steps", "steady steps that all ranks have in common"),
    "step.input_wait_s": (
        "s",
        "waiting for input in a typical step; the first fetch of each epoch and the drawing of indices left out",
    ),
    "step.index_s": ("s", "drawing the indices of a step's batches, in the training thread"),
    "step.epoch_start_s": ("s", "first fetch of each epoch and start of its workers, per step"),
    "step.compute_s": ("s", "forward (where it is known), backward without communication, optimizer"),
    "step.gap_s": (
        "s",
        "unlabelled time between the optimizer and the next fetch, and the user's own before the optimizer",
    ),
    "step.longest_gap_s": ("s", "the longest such time that a single step had"),
    "step.longest_gap_share": ("", "of all such time, what this one was"),
    "step.before_update_s": ("s", "of that, between backward and optimizer: neither clipping nor an exchange"),
    "step.evaluation_s": ("s", "evaluation, spread over the steps"),
    "step.checkpoint_s": ("s", "checkpoints with their fsync, spread over the steps"),
    "step.gc_s": ("s", "garbage collections"),
    "gc.critical_s": ("s", "how much shorter the mean step would be without any rank's garbage collections"),
    "gc.between_s": ("s", "garbage collections between the optimizer and the next fetch, those of 5 ms and more"),
    "gc.repeated_pause_s": ("s", "garbage collections in one step: as long in three steps at least"),
    "step.system_s": ("s", "forward and backward inside the kernel: page faults, mostly"),
    "step.run_delay_s": ("s", "training thread runnable without a core"),
    "step.own_s": ("s", "everything but waiting for other ranks"),
    "step.batches": ("batches", "micro-batches of one rank in a step"),
    "step.samples": ("samples", "samples of one rank in a step"),
    "gap.io_share": ("", "share of the stack samples between steps that stood in file writes, prints or loggers"),
    "gap.save_share": ("", "share of them that stood in a function that saves, outside of what torch does for it"),
    "run.evaluation_share": ("", "evaluation's share of the run since the first step"),
    "run.duration_s": ("s", "since the job's start"),
    "start.total_s": ("s", "from the job's start until the first step of every rank was done, a usual step taken off"),
    "start.before_s": ("s", "from the job's start until the first fetch of its slowest rank to start"),
    "start.fetch_s": ("s", "that rank's first fetch beyond a usual one"),
    "start.first_step_s": ("s", "the rest of its first step beyond a usual one"),
    "comm.wire_s": ("s", "exposed communication of the rank that arrives last: the wire itself"),
    "comm.span_s": (
        "s",
        "from the first all-reduce of a backward pass to the end of the last, what backward hides included",
    ),
    "comm.skew_s": ("s", "how much earlier the other ranks were done than the last one, mean over steps"),
    "comm.late_share": ("", "share of steps in which this rank arrived last by a clear margin"),
    "comm.kept_waiting_s": ("s", "of comm.skew_s, what comes from steps in which this rank was the last"),
    "comm.excess_s": ("s", "own work of this rank beyond the median of the others"),
    "comm.megabytes": ("MB", "gradient bytes all-reduced per step"),
    "comm.exchanges": (
        "exchanges",
        "times that DDP exchanges the gradients in a step: one for each backward outside `no_sync`",
    ),
    "comm.joined": ("ranks", "that have joined one process group, as torch.distributed or Horovod tells"),
    "comm.exposed_s": (
        "s",
        "communication that this rank waits for after its own work, waiting for late ranks included",
    ),
    "comm.hidden_s": ("s", "communication that ran beside this rank's backward pass"),
    "comm.buckets": ("buckets", "parts in which DDP sends the gradients"),
    "comm.largest_bucket": ("", "share of the gradients that lies in the largest of them"),
    "comm.bus_gb_per_s": ("GB/s", "carried by each link in a step's exchange: 2(N-1)/N of the bytes, over its time"),
    "comm.gloo_on_gpu": ("", "1 where a model on a GPU exchanges its gradients by gloo"),
    "collectives.calls": ("calls", "collectives that the job calls from Python in a step"),
    "collectives.megabytes": ("MB", "what they move per step"),
    "collectives.held_s": ("s", "for which they hold this rank per step, waiting for late ranks included"),
    "collectives.by_hand_s": ("s", "of that between backward and optimizer, on the rank that is held shortest"),
    "collectives.norm_calls": ("calls", "collectives of synchronised batch norm in a step"),
    "collectives.norm_s": ("s", "for which these hold the rank that is held shortest"),
    "nccl.socket": ("", "1 where NCCL connects ranks by TCP"),
    "net.gbit_per_s": ("Gbit/s", "nominal speed of the network card that the ranks exchange over"),
    "loader.workers": ("workers", "worker processes of the training loader"),
    "loader.busy_share": ("", "share of the time outside evaluations and checkpoints that workers made batches"),
    "loader.lock_share": (
        "",
        "of the looks at processes that made samples, those that found one waiting for a lock or server of all",
    ),
    "loader.lock_error": ("", "standard error of that share"),
    "loader.foreseen": ("workers", "the most workers per rank with which the step can be foretold"),
    "fetch.wall_s": ("s", "making one batch, in one worker or in the training process"),
    "fetch.cpu_share": ("", "CPU time over the time of making a batch"),
    "fetch.delay_share": ("", "waiting for a core over the time of making a batch"),
    "fetch.system_share": ("", "CPU time inside the kernel over the time of making a batch, in a worker"),
    "fetch.blocked_share": ("", "neither computing nor waiting for a core: reading, sleeping, locked"),
    "fetch.hand_over_s": ("s", "of the wait for a batch, what came after a worker had made it"),
    "fetch.hand_over_error": ("", "two standard errors of the mean fetch.hand_over_s, over it"),
    "fetch.behind_s": ("s", "of the wait for a batch still being made, the time in which a later one was made already"),
    "fetch.worker_lag": (
        "",
        "what the batches of the slowest worker take over those of the others at least, waiting for a core aside",
    ),
    "fetch.slow_ratio": ("", "what batches that kept later ones waiting took to make, over the median"),
    "epoch.starts": ("epochs", "epochs that began within the steady steps"),
    "epoch.steps": ("steps", "from the begin of an epoch to that of the next"),
    "epoch.start_s": (
        "s",
        "what the begin of an epoch takes beyond a usual fetch: workers ended, started, first batch",
    ),
    "epoch.start_compute_s": (
        "s",
        "how much longer the first step of an epoch computes: its workers are still starting",
    ),
    "epoch.first_batch_s": ("s", "a new worker's first batch"),
    "epoch.cold_steps": ("steps", "of the first epoch, where its fetches waited much longer than later ones"),
    "epoch.cold_wait_s": ("s", "waiting for input in a step of that epoch"),
    "epoch.cold_later_wait_s": ("s", "the same in later epochs"),
    "epoch.cold_step_s": ("s", "step time in that epoch"),
    "epoch.cold_read_mb": ("MB", "read from a device per batch in that epoch"),
    "epoch.cold_later_read_mb": ("MB", "the same in later epochs"),
    "epoch.index_s": ("s", "making the iterator after its workers stood: the order of the samples"),
    "copy.float_pictures_mb": (
        "MB",
        "pictures that cross to the device as floating-point numbers though they are bytes",
    ),
    "fetch.read_mb": ("MB", "read from a device per batch"),
    "fetch.read_mb_per_s": ("MB/s", "read from a device while making batches, per worker"),
    "data.network_mount": ("", "1 when the data lies on a network file system"),
    "shm.used_share": ("", "the fullest that /dev/shm was, as the job sees it"),
    "shm.total_mb": ("MB", "size of /dev/shm, as the job sees it"),
    "cpu.allowed_cores": ("cores", "cores the job may use"),
    "cpu.job_cores": ("cores", "cores the job kept busy"),
    "cpu.host_cores": ("cores", "cores of the host"),
    "cpu.given_cores": ("cores", "cores that whoever started the job may use, whatever the job binds itself to"),
    "cpu.affinity_cores": ("cores", "cores of the host that any of its ranks may run on, quotas aside"),
    "cpu.host_busy_cores": ("cores", "cores busy on the host, by anybody"),
    "cpu.other_cores": ("cores", "cores kept busy by processes that are not of this job"),
    "cpu.helper_cores": ("cores", "cores kept busy by processes of the job that are neither ranks nor loader workers"),
    "threads.intra_op": ("threads", "threads among which torch splits one operation"),
    "threads.waiting": ("threads", "threads of this rank that stand ready without a core, on average"),
    "ddp.searched": ("iterations", "iterations of which DDP told what its search for unused parameters found"),
    "ddp.with_unused": ("iterations", "those in which it found one"),
    "memory.watched_s": ("s", "how long the memory of the job's processes was followed after the warm-up"),
    "memory.worker_mb": ("MB", "what one loader worker holds and shares with nobody"),
    "memory.pressure_share": ("", "share of the time in which some process of the host waited for memory"),
    "memory.swap_in_mb_per_s": ("MB/s", "read back from swap, by anybody on the host"),
    "memory.host_left_share": ("", "of the host's memory, what could be had without swapping"),
    "memory.limit_used_share": ("", "of this rank's memory limit, what no page cache would give back"),
    "memory.limit_mb": ("MB", "the memory limit above this rank"),
    "memory.headroom_mb": ("MB", "what the job may still take: host memory or its control group's limit, the smaller"),
    "cpu.steal_share": ("", "share of the host's CPU time the hypervisor took"),
    "quota.cores": ("cores", "the CPU quota above this rank"),
    "quota.throttled_share": ("", "share of quota periods in which this rank's cgroup was held back"),
    "quota.throttled_s_per_s": ("s/s", "time held back per second of wall time"),
    **STORAGE_VALUES,
    **SAMPLE_VALUES,
    **GPU_VALUES,
    **PACE_VALUES,
    **KERNEL_VALUES,
    **ROOFLINE_VALUES,
}


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """One DataLoader of the job as its construction tells."""

    rank: int
    id: int
    training: bool | None
    file: str
    line: int
    num_workers: int
    batch_size: int | None
    persistent_workers: bool
    pin_memory: bool
    dataset: Mapping[str, Any]
    mount: Mapping[str, Any] | None = None
    prefetch_factor: int | None = None
    batch_bytes: int | None = None  # of its first batch's tensors
    library: str = ""  # of another library's loader: what stands above of its workers is not known
    # of several that feed the same steps the one that these wait for: how many of its batches each takes, and how many others there are
    per_step: float | None = None
    beside: int = 0
    made: int = 1  # how often, at the same line for the same data

    @property
    def lives_on(self) -> bool:
        """Its workers stay from epoch to epoch."""
        return self.persistent_workers and self.made <= 1


@dataclass(frozen=True, slots=True)
class HotLine:
    """Where the time between steps goes, or sleep inside them, by stack samples: a line of the user's and what it was in."""

    file: str
    line: int
    function: str
    leaf: str  # innermost frame, e.g. "write (logging/__init__.py:1100)"
    samples: int
    share: float
    io: bool  # file writes, prints, loggers


@dataclass(frozen=True, slots=True)
class Death:
    rank: int | None
    pid: int
    t_s: float  # since the job's start
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    phase: str
    step: int
    role: str = "rank"
    exception: str = ""
    first: bool = False
    follows: bool = False  # by its own exception: another rank had gone before
    loader: int | None = None  # of a worker that made a batch: the number of its loader
    t_error_s: float = 0.0  # of `t_s` against deaths on other hosts: how well their clocks are known

    @property
    def failed_by_itself(self) -> bool:
        """For a reason of its own, as far as it told one."""
        return self.oom_killed or self.signal in _CRASHES or bool(self.exception and not self.follows)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the job failed, as its exceptions or its output tell."""

    kind: str  # of the known failures, or "exception"
    title: str
    advice: str  # empty: only what the exception itself says
    rank: int | None  # None: before there were ranks, or nobody told
    line: str  # where it was read


@dataclass(frozen=True, slots=True)
class StalledRank:
    rank: int
    phase: str
    step: int
    since_s: float  # how long it has not moved
    file: str
    line: int
    function: str
    leaf: str
    culprit: bool
    waiting_in_collective: bool
    # Seen at the same place twice and not run in between: stopped by a signal, or asleep in the user's own line. Empty: it may be at work.
    halted: Literal["", "asleep", "stopped"] = ""
    compiling: bool = False
    working: bool = False  # seen twice outside of any collective, and computed on a CPU in between


@dataclass(frozen=True, slots=True)
class StuckCollective:
    """The collective in which a job stands: who has begun it and who has not."""

    kind: str  # all_reduce, broadcast, barrier
    number: int  # of its group's collectives, as each rank counts them
    group_size: int
    present: tuple[int, ...]
    missing: tuple[int, ...]
    elements: int | None = None
    differing: str = ""  # what each rank calls instead, where they do not call the same
    source: str = ""  # who counted


@dataclass(frozen=True, slots=True)
class Stall:
    t_s: float
    stalled_s: float
    ended: bool
    typical_step_s: float
    p99_step_s: float
    ranks: tuple[StalledRank, ...]
    collective: StuckCollective | None = None  # None: nobody could tell which, or it is none
    others_moved: bool = False  # it was one that stood, not the job
    resumed: bool = False  # steps followed it
    group_size: int = 0  # with how many these ranks exchange, as far as is known: not all need be seen


@dataclass(frozen=True, slots=True)
class Coincidence:
    """What a probe of the host saw before and after the speed changed: means over both stretches."""

    metric: str
    scope: str
    before: float
    after: float
    unit: str


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """From `step` on the steps took longer. `rank` None: on all ranks; `until_s` None: to the end."""

    step: int
    t_s: float  # since the job's start
    until_s: float | None
    before_s: float  # typical step of the stretch before
    after_s: float
    steps_before: float
    steps_after: float
    lasted_s: float
    lost_share: float  # of the time of all steady steps
    rank: int | None
    phase: str  # that grew most
    phase_s: float  # by so much
    alike: bool = False  # forward and backward of all ranks grew alike, as when the machine slows down
    coincidences: tuple[Coincidence, ...] = ()
    work: str = ""  # what the job has more to do since then; empty: nothing that was seen


@dataclass(frozen=True, slots=True)
class PeriodicStall:
    """Steps that are far longer than the usual one, again and again. One of the periods is known at least."""

    period_steps: float | None  # None: regular in seconds only
    period_s: float | None
    events: int
    steps: int  # among so many
    usual_s: float
    stall_s: float  # what a stall takes beyond the usual step
    share: float  # of the time
    rank: int | None
    phase: str
    coincides: str  # empty: with nothing that was seen
    last_step: int


@dataclass(frozen=True, slots=True)
class MemoryTrend:
    """Memory of one rank, of all its workers together, or what all workers of the job copied, over the run after the warm-up."""

    rank: int
    role: Literal["rank", "worker"]
    processes: int
    # True: pages that workers copied from what they inherited by fork; their resident memory does not show them
    copied: bool
    seconds: float
    steps: float  # of the rank in this time
    thirds_mb: tuple[float, float, float]  # median of each third of the time
    mb_per_s: float
    # what can still be copied, or be kept of a first pass over the data; None: nothing bounds the growth
    left_mb: float | None = None

    @property
    def growth(self) -> float:
        """Share by which it grew."""
        return self.mb_per_s * self.seconds / max(self.thirds_mb[0], 1e-9)


@dataclass(frozen=True, slots=True)
class Analysis:
    meta: Meta
    world_size: int
    step_time: StepTime
    throughput: Throughput
    values: Mapping[tuple[str, str], float] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)  # value -> why it could not be had
    model: StepModel | None = None
    workers: WorkerModel | None = None  # None: nobody saw a batch being made
    forecast: Forecast | None = None  # of the step, by workers per rank
    budget: Budget = field(default_factory=Budget)
    # by rank and phase: own beyond the others' median
    excess: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    loaders: tuple[LoaderFacts, ...] = ()
    feed: Feed | None = None  # None: torch's loaders feed every rank
    habits: Habits = field(default_factory=Habits)
    sample: SampleCost | None = None  # None: no sample was looked into while it was made
    lock: SharedLock | None = None  # None: no worker was found waiting for one
    asking: SampleLine | None = None  # where workers were found waiting for a server's answer
    holders: tuple[Holder, ...] = ()  # of ranks whose training thread was found waiting for the interpreter
    hot_lines: tuple[HotLine, ...] = ()
    waiting_lines: tuple[HotLine, ...] = ()  # where ranks sleep inside the step, the longest first
    save_sites: tuple[Mapping[str, Any], ...] = ()
    deaths: tuple[Death, ...] = ()
    failure: Failure | None = None
    out_of_memory: OutOfMemory | None = None  # where the failure is that of a GPU's memory, and its numbers were told
    stalls: tuple[Stall, ...] = ()
    memory: tuple[MemoryTrend, ...] = ()
    # cores that processes of the job kept busy which are neither ranks nor workers, by command
    helpers: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[SpeedChange, ...] = ()
    pulse: PeriodicStall | None = None
    nccl: NcclFacts | None = None  # None: NCCL said nothing of itself, or nobody kept it
    storage: DataMount | None = None  # what the training data lies on, where that is known
    capacities: tuple[Capacity, ...] = ()
    segments: tuple[Segment, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    overhead: Overhead = field(default_factory=Overhead)
    ranks: tuple[RankStrip, ...] = ()
    host: HostStrip | None = None
    gpus: tuple[GpuStrip, ...] = ()
    gpu_view: GpuView = field(default_factory=GpuView)
    duration_s: float = 0.0
    running: bool = False
    nodes: tuple[NodeStrip, ...] = ()  # of a job on several hosts; empty where one host is all there was
    # the ranks whose host the values of cores, memory and disks are of; empty: that of all ranks
    host_ranks: tuple[int, ...] = ()
    # the values by name and scope, filled at the first question
    _scopes: dict[str, dict[str, float]] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def ranks_of_host(self) -> int:
        """Ranks that share the cores and the memory that the values tell of."""
        return len(self.host_ranks) or max(self.world_size, 1)

    def of_host(self, by_rank: Mapping[int, float]) -> dict[int, float]:
        """Of these ranks those on that host."""
        return {rank: value for rank, value in by_rank.items() if not self.host_ranks or rank in self.host_ranks}

    @property
    def stopped_from_outside(self) -> bool:
        """Ctrl-C, a time limit or a scheduler ended the job: no rank failed by itself."""
        asked = [d for d in self.deaths if d.role == "rank"]
        if asked and (asked[0].signal == signal.SIGINT or asked[0].exception.startswith("KeyboardInterrupt")):
            return True
        if asked and self.meta.exit_signal == signal.SIGINT and self.meta.ended_ns is not None:
            # Ctrl-C goes to all of a job, and processes of multiprocessing leave with code 1; who crashed just before it says why
            lasted_s = (self.meta.ended_ns - self.meta.started_ns) / 1e9
            return lasted_s - asked[0].t_s <= _INTERRUPTED_S and not asked[0].failed_by_itself
        whole = self.world_size == 1 or self.meta.exit_signal == signal.SIGTERM or self.meta.exit_code in _STOPPED_CODES
        return bool(asked) and whole and all(d.signal == signal.SIGTERM and not d.oom_killed for d in asked)

    def get(self, name: str, rank: int | None = None) -> float | None:
        """A value of the job, or of one rank; None when it was not measured."""
        return self.values.get((name, JOB if rank is None else f"rank:{rank}"))

    def value(self, name: str, rank: int | None = None) -> float:
        """As `get`, for a value the rule lists under `needs`. Raises KeyError when absent."""
        return self.values[name, JOB if rank is None else f"rank:{rank}"]

    def by_rank(self, name: str) -> dict[int, float]:
        """The value of every rank that has it."""
        found = {int(s[5:]): v for s, v in self._by_name().get(name, {}).items() if s.startswith("rank:")}
        return dict(sorted(found.items()))

    def has(self, name: str) -> bool:
        return name in self._by_name()

    def _by_name(self) -> Mapping[str, Mapping[str, float]]:
        """Sorted once: of a thousand ranks a hundred thousand values are not gone through at each of three hundred questions."""
        if not self._scopes:
            for (name, scope), value in self.values.items():
                self._scopes.setdefault(name, {})[scope] = value
        return self._scopes

    def training_loader(self, rank: int) -> LoaderFacts | None:
        return training_loader(self.loaders, rank)


def training_loader(loaders: Sequence[LoaderFacts], rank: int) -> LoaderFacts | None:
    """The loader that feeds a rank's training: of several at a time the slowest, else the last one known to, else the only one."""
    mine = [loader for loader in loaders if loader.rank == rank]
    known = [loader for loader in mine if loader.training]
    slowest = [loader for loader in known if loader.beside]
    return (slowest or known)[-1] if known else mine[0] if len(mine) == 1 else None
