"""A recording in numbers, before any judgement: the only input of rules."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, overload

from rn50_advisor.advisor.model.changes import Coincidence, MemoryTrend, PeriodicStall, SpeedChange
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerModel
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits, Holder
from rn50_advisor.advisor.model.gpu.out_of_memory import OutOfMemory
from rn50_advisor.advisor.model.incidents import Death, Failure, Stall, StalledRank, StuckCollective
from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.input_source import InputSource
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine, SharedLock
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure, JobMeasure, Measure, RankMeasure, Scope, Scoped
from rn50_advisor.advisor.model.measures.measured import ByMeasure
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import (
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
from rn50_advisor.advisor.model.seen_share import Coverage
from rn50_advisor.probes.documents.rank_documents import EvaluationSite, RankFacts, SaveSite

__all__ = [
    "JOB",
    "Analysis",
    "Coincidence",
    "Death",
    "Failure",
    "HotLine",
    "LoaderFacts",
    "MemoryTrend",
    "PeriodicStall",
    "SpeedChange",
    "Stall",
    "StalledRank",
    "StuckCollective",
    "training_loader",
]

_STOPPED_CODES = (124, 130, 143)  # of `timeout`, and of a shell whose command ended by SIGINT or SIGTERM
# From the first notice to the last: a spot instance is given two minutes, other schedulers give less (kubelet and Slurm 30 s).
_LEAVES_WITHIN_S = 120.0
_INTERRUPTED_S = 5.0  # within which all of an interrupted job has gone; torch waits as long for its loaders' workers


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
class Analysis:
    meta: Meta
    world_size: int
    step_time: StepTime
    throughput: Throughput
    values: Mapping[Scoped, float] = field(default_factory=dict)
    reasons: Mapping[tuple[Measure, Scope], str] = field(default_factory=dict)  # why a value could not be had
    model: StepModel | None = None
    workers: WorkerModel | None = None  # None: no batch preparation was observed
    forecast: Forecast | None = None  # of the step, by workers per rank
    budget: Budget = field(default_factory=Budget)
    # by rank and phase: own beyond the others' median
    excess: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    loaders: tuple[LoaderFacts, ...] = ()
    feed: InputSource | None = None  # None: torch's loaders feed every rank
    coverage: Coverage | None = None  # None: no step was seen
    habits: Habits = field(default_factory=Habits)
    # by rank, of those whose batches a benchmark of this machine swept
    batch_curves: Mapping[int, BatchCurve] = field(default_factory=dict)
    sample: SampleCost | None = None  # None: no sample was looked into while it was made
    lock: SharedLock | None = None  # None: no worker was found waiting for one
    asking: SampleLine | None = None  # where workers were found waiting for a server's answer
    holders: tuple[Holder, ...] = ()  # of ranks whose training thread was found waiting for the interpreter
    hot_lines: tuple[HotLine, ...] = ()
    waiting_lines: tuple[HotLine, ...] = ()  # where ranks sleep inside the step, the longest first
    preparing_lines: tuple[HotLine, ...] = ()  # that make batches ready between fetch and model, the longest first
    measuring_lines: tuple[HotLine, ...] = ()  # that measure what came out between model and backward pass
    recomputing_lines: tuple[HotLine, ...] = ()  # whose forward pass is checkpointed, the most frequent first
    save_sites: tuple[SaveSite, ...] = ()
    evaluation_sites: tuple[EvaluationSite, ...] = ()  # the most frequent first
    # share of the batches that loaders supplied for evaluation; None: they supplied none
    evaluated_with_gradients: float | None = None
    deaths: tuple[Death, ...] = ()
    failure: Failure | None = None
    out_of_memory: OutOfMemory | None = None  # if a GPU ran out of memory and its numbers were reported
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
    asked_to_end_s: tuple[float, ...] = ()  # since the job's start: Ctrl-C, a scheduler's signal
    nodes: tuple[NodeStrip, ...] = ()  # of a job on several hosts; empty where one host is all there was
    # the ranks whose host the values of cores, memory and disks are of; empty: that of all ranks
    host_ranks: tuple[int, ...] = ()
    _measured: ByMeasure[Scoped, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = self.values if isinstance(self.values, ByMeasure) else ByMeasure(self.values)
        object.__setattr__(self, "_measured", values)

    @property
    def ranks_of_host(self) -> int:
        """Ranks that share the cores and the memory that the values tell of."""
        return len(self.host_ranks) or max(self.world_size, 1)

    def of_host(self, by_rank: Mapping[int, float]) -> dict[int, float]:
        """The ranks on that host."""
        return {rank: value for rank, value in by_rank.items() if not self.host_ranks or rank in self.host_ranks}

    @property
    def rank_facts(self) -> dict[int, RankFacts]:
        """Facts by rank, where a rank wrote any."""
        return {int(name): cast(RankFacts, told) for name, told in self.facts.items() if name.isdecimal()}

    @property
    def on_gpu(self) -> bool:
        """Some rank trains on a GPU."""
        return any(told.get("cuda") for told in self.rank_facts.values())

    @property
    def stopped_from_outside(self) -> bool:
        """Ctrl-C, a time limit or a scheduler ended the job: no rank failed by itself."""
        asked = [d for d in self.deaths if d.role == "rank"]
        if self._ended_as_asked(asked):
            return True
        if asked and (asked[0].signal == signal.SIGINT or asked[0].exception.startswith("KeyboardInterrupt")):
            return True
        if asked and self.meta.exit_signal == signal.SIGINT and self.meta.ended_ns is not None:
            # Ctrl-C goes to all of a job, and processes of multiprocessing leave with code 1; who crashed just before it says why
            lasted_s = (self.meta.ended_ns - self.meta.started_ns) / 1e9
            return lasted_s - asked[0].t_s <= _INTERRUPTED_S and not asked[0].failed_by_itself
        whole = self.world_size == 1 or self.meta.exit_signal == signal.SIGTERM or self.meta.exit_code in _STOPPED_CODES
        return bool(asked) and whole and all(d.signal == signal.SIGTERM and not d.oom_killed for d in asked)

    def _ended_as_asked(self, ranks: list[Death]) -> bool:
        """True if the job was asked to end and then ended. It may take its time, and exit with any code."""
        if not ranks and self.failure is not None:
            return False
        ended_s = ranks[0].t_s if ranks else self.duration_s
        asked = any(0.0 <= ended_s - t_s <= _LEAVES_WITHIN_S for t_s in self.asked_to_end_s)
        return asked and not (ranks and ranks[0].failed_by_itself)

    @overload
    def get(self, measure: JobMeasure, rank: None = None) -> float | None: ...
    @overload
    def get(self, measure: RankMeasure, rank: int) -> float | None: ...
    def get(self, measure: Measure, rank: int | None = None) -> float | None:
        """A value of the job, or of one rank; None when it was not measured."""
        return self._measured.row(measure).get(JOB if rank is None else rank)

    @overload
    def value(self, measure: JobMeasure, rank: None = None) -> float: ...
    @overload
    def value(self, measure: RankMeasure, rank: int) -> float: ...
    def value(self, measure: Measure, rank: int | None = None) -> float:
        """As `get`, for a value the rule lists under `needs`. Raises KeyError when absent."""
        return self._measured.row(measure)[JOB if rank is None else rank]

    def by_rank(self, measure: RankMeasure) -> dict[int, float]:
        """The value of every rank that has it."""
        return self._measured.by_rank(measure)

    def of_gpu(self, measure: GpuMeasure, index: int) -> float | None:
        return self._measured.row(measure).get(index)

    def has(self, measure: Measure) -> bool:
        return self._measured.has(measure)

    @property
    def missing(self) -> dict[Measure, str]:
        """Why measures could not be had: of several ranks the last one's reason."""
        return {measure: why for (measure, _), why in self.reasons.items()}

    def training_loader(self, rank: int) -> LoaderFacts | None:
        return training_loader(self.loaders, rank)
