"""The object that every screen and every export shows; `as_json` is the contract `rn50-advisor/report/1`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.findings import Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.worker_curve import WorkerCurve
from rn50_advisor.advisor.model.history import History
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.trials import Tried

SCHEMA = "rn50-advisor/report/1"

# The exclusive phases of a step, in the order shown. Together they are the whole step; `unattributed` is the time that no mark covers.
EPOCH_START, INPUT_OR_FORWARD = "input_wait.epoch_start", "input_or_forward"
PHASES = (
    "input_wait",
    EPOCH_START,
    INPUT_OR_FORWARD,
    "forward",
    "backward",
    "comm_exposed",
    "optimizer",
    "gap.evaluation",
    "gap.checkpoint",
    "gap",
    "unattributed",
)
PHASE_TITLES = {
    "input_wait": "waiting for input",
    EPOCH_START: "epoch start-up",
    INPUT_OR_FORWARD: "input or forward",  # no loader was seen: fetch and forward cannot be separated
    "forward": "forward",
    "backward": "backward",
    "comm_exposed": "communication (exposed)",
    "optimizer": "optimizer",
    "gap.evaluation": "evaluation",
    "gap.checkpoint": "checkpoints",
    "gap": "between steps",
    "unattributed": "unattributed",
}

State = Literal["bottleneck", "healthy", "inconclusive", "failed"]


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    rule: str | None
    title: str
    summary: str


@dataclass(frozen=True, slots=True)
class OutcomeRow:
    rule: str
    state: Literal["fired", "clear", "not_measured", "crashed"]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Throughput:
    samples_per_s: float | None
    steps_per_s: float | None
    batch_size: float | None  # samples per step and rank
    world_size: int
    watts: float | None = None  # of all GPUs that train; None: at least one was not measured
    joules_per_sample: float | None = None


@dataclass(frozen=True, slots=True)
class StepTime:
    median_s: float | None
    p95_s: float | None
    steps: int
    steady_steps: int


@dataclass(frozen=True, slots=True)
class Budget:
    """Seconds per step by phase. Per rank, `comm_exposed` includes waiting for other ranks; on the critical path only transfer time."""

    critical: Mapping[str, float] = field(default_factory=dict)
    per_rank: Mapping[int, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Capacity:
    """The rate in samples/s that one stage could sustain alone, all ranks together.

    If it was not measured, the numbers are None and `basis` has the reason.
    """

    stage: str  # storage, preprocessing, loader, copy, compute, communication
    samples_per_s: float | None
    lo: float | None
    hi: float | None
    basis: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the run of one kind, in seconds since the job's start. `start`: a start of the ranks, if they were restarted."""

    kind: Literal[
        "start",
        "warm-up",
        "run-ahead",
        "epoch",
        "epoch start",
        "evaluation",
        "checkpoint",
        "deep window",
        "change",
        "stall",
    ]
    start_s: float
    end_s: float
    first_step: int | None = None
    last_step: int | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class TimelinePoint:
    """One of at most a few hundred equal slices of the run, for sparklines and plots."""

    t_s: float
    samples_per_s: float | None
    step_s: float | None
    input_wait_share: float | None = None
    late_rank: int | None = None  # the rank that the others waited for most
    late_s: float | None = None  # this wait per step


@dataclass(frozen=True, slots=True)
class GpuProcessRow:
    """A process on a GPU as last listed. `own`: of this job. Empty words and None: not known."""

    pid: int
    user: str = ""
    name: str = ""
    mem_bytes: float | None = None
    own: bool = False


@dataclass(frozen=True, slots=True)
class GpuStrip:
    index: int
    name: str
    util_pct: float | None = None
    mem_used_bytes: float | None = None
    mem_total_bytes: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    temp_c: float | None = None
    ranks: str = ""  # ranks that run on it, as "0, 1"
    pcie_gen: float | None = None
    pcie_width: float | None = None
    sm_active_pct: float | None = None  # if the GPU counts it (Hopper and later)
    tensor_active_pct: float | None = None
    throttled_pct: float | None = None  # time in which heat or a power brake lowered its clocks
    trouble: str = ""  # in a few words; empty: none known
    place: str = ""  # host and index there, for a job on several hosts
    instances: str = ""  # its MIG instances and their memory in use
    host: str = ""  # for a job on several hosts
    processes: tuple[GpuProcessRow, ...] = ()  # if the driver listed them; the job's own first


@dataclass(frozen=True, slots=True)
class HostStrip:
    """The state of the host as last seen. None: not measured."""

    name: str
    cores: float | None = None
    allowed_cores: float | None = None
    busy_cores: float | None = None
    job_cores: float | None = None
    steal_pct: float | None = None
    throttled_pct: float | None = None
    mem_used_bytes: float | None = None
    mem_total_bytes: float | None = None
    shm_used_bytes: float | None = None
    shm_total_bytes: float | None = None
    disk_read_mb_s: float | None = None
    disk_busy_pct: float | None = None
    net_mb_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeStrip:
    """One host of a job on several. Times of its ranks were converted to the first node's clock; `clock_uncertainty_s` is the error."""

    host: str
    ranks: tuple[int, ...]
    strip: HostStrip | None = None
    clock: str = "own"  # "own": the first node; else the basis of the conversion, "collectives" or "wall clock"
    clock_offset_s: float = 0.0
    clock_uncertainty_s: float = 0.0
    lost_after_s: float | None = None  # the node sent nothing after this time
    shown: bool = False  # True: the job's values of cores, memory and disks are from this host


@dataclass(frozen=True, slots=True)
class RankStrip:
    """The state of one rank as last seen: its phase and the time of its last steps."""

    rank: int
    pid: int
    alive: bool
    phase: str
    phase_for_s: float
    step: int
    step_s: float | None
    late_share: float | None = None  # share of steps in which it arrived last at the first collective
    host: str = ""  # for a job on several hosts


@dataclass(frozen=True, slots=True)
class Overhead:
    us_per_step: float | None = None
    step_share: float | None = None
    startup_s: float | None = None
    agent_cpu_share: float | None = None
    shed: tuple[str, ...] = ()
    worker_share: float | None = None  # of the lifetime of loader workers
    driver_share: float | None = None  # share of the time spent querying the GPU driver


@dataclass(frozen=True, slots=True)
class Job:
    argv: tuple[str, ...]
    exit_code: int | None
    duration_s: float
    ranks: int
    running: bool = False
    exit_signal: str | None = None
    name: str = ""
    traced: bool = False  # read from a profiler's trace


@dataclass(frozen=True, slots=True)
class Report:
    verdict: Verdict
    job: Job
    throughput: Throughput
    step_time: StepTime
    findings: tuple[Finding, ...] = ()
    outcomes: tuple[OutcomeRow, ...] = ()
    budget: Budget = Budget()
    capacities: tuple[Capacity, ...] = ()
    segments: tuple[Segment, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    environment: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    gaps: tuple[ProbeGap, ...] = ()
    overhead: Overhead = Overhead()
    ranks: tuple[RankStrip, ...] = ()
    host: HostStrip | None = None
    gpus: tuple[GpuStrip, ...] = ()
    # None: no batch preparation was observed, or the number of samples is unknown
    worker_curve: WorkerCurve | None = None
    nodes: tuple[NodeStrip, ...] = ()  # of a job on several hosts; empty for a job on one host
    history: History | None = None  # for screens and plots of this advisor; not exported
    tried: Tried | None = None  # fixes of the run, tried after it; a contract of its own, `rn50-advisor/try/1`

    def as_json(self) -> dict[str, Any]:
        """The report as plain JSON values; NaN and infinities become null."""
        document = {"schema": SCHEMA}
        document.update(plain_values(self))
        return document


def nodes_shown(report: Report, most: int) -> list[NodeStrip]:
    """At most `most` nodes, in order: lost ones first, then the one that the job's values are from, then the most often late."""
    late = {strip.rank: strip.late_share or 0.0 for strip in report.ranks}

    def weight(node: NodeStrip) -> tuple[bool, bool, float]:
        return node.lost_after_s is not None, node.shown, max((late.get(rank, 0.0) for rank in node.ranks), default=0.0)

    chosen = sorted(report.nodes, key=weight, reverse=True)[:most]
    return [node for node in report.nodes if node in chosen]


# Internal fields of the engine, which are not part of the contract.
INTERNAL: Mapping[type, tuple[str, ...]] = {
    Finding: ("fatal", "urgent", "circumstances"),
    Evidence: ("form", "gpu"),
    Fix: ("call", "options", "typed", "gpus"),
    GpuStrip: ("host",),
    Report: ("history", "tried"),
}


def plain_values(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        left_out = INTERNAL.get(type(value), ())
        return {f.name: plain_values(getattr(value, f.name)) for f in fields(value) if f.name not in left_out}
    if isinstance(value, Mapping):
        return {str(key): plain_values(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_values(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()  # numpy scalar
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
