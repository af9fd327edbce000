"""The numbers computed from a recording, without judgement: the only input of the rules."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, overload

from rn50_advisor.advisor.model.changes import Coincidence, MemoryTrend, PeriodicStall, SpeedChange
from rn50_advisor.advisor.model.comm.nccl_settings import NcclFacts
from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve
from rn50_advisor.advisor.model.forecast.step_model import StepModel
from rn50_advisor.advisor.model.forecast.worker_model import Forecast, WorkerModel
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, Holder, PublishedSpeed
from rn50_advisor.advisor.model.gpu.out_of_memory import OutOfMemory
from rn50_advisor.advisor.model.history import History
from rn50_advisor.advisor.model.incidents import Death, Failure, Stall, StalledRank, StuckCollective
from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts, training_loader
from rn50_advisor.advisor.model.input.input_source import InputSource
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleCost, SampleLine, SharedLock
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
from rn50_advisor.probes.documents.code_places import CodePlace, CollectionCall
from rn50_advisor.probes.documents.event_documents import ChunkedArray
from rn50_advisor.probes.documents.model_documents import OrderKind
from rn50_advisor.probes.documents.rank_documents import EvaluationSite, RankFacts, SaveSite

__all__ = [
    "JOB",
    "Analysis",
    "Coincidence",
    "Death",
    "Failure",
    "HotLine",
    "LoaderFacts",
    "LongKernel",
    "MemoryTrend",
    "PeriodicStall",
    "ReorderedOperations",
    "SpeedChange",
    "Stall",
    "StalledRank",
    "StuckCollective",
    "training_loader",
]

_STOPPED_CODES = (124, 130, 143)  # exit codes of `timeout`, and of a shell whose command ended by SIGINT or SIGTERM
# Longest time from the request to end until the end: spot instances get two minutes, other schedulers give less (kubelet and Slurm 30 s).
_LEAVES_WITHIN_S = 120.0
_INTERRUPTED_S = 5.0  # an interrupted job ends within this time; torch waits as long for loader workers


EachTensor = Literal["", "new", "in place"]
IteratesOver = Literal["data", "modules", "parameters", "squares"]  # squares: of parameters
ComposedForm = Literal[
    "gelu",
    "gelu by tanh",
    "silu",
    "layer norm",
    "layer norm of channels",
    "batch norm",
    "instance norm",
    "softmax",
    "distances",
    "absolute distances",
    "cosine similarities",
    "layer of cosine similarities",
    "sums of products",
    "convolution by columns",
    "product with a diagonal matrix",
    "product with one-hot rows",
    "sums by one-hot rows",
    "layer on one-hot rows",
    "relu by a mask",
    "relu by a maximum",
    "leaky relu",
    "elu",
    "hardswish",
    "smooth L1 loss",
    "squared error",
    "binary cross entropy",
    "cross entropy of one-hot targets",
    "logarithm of softmax",
    "sorted prefix",
    "repeated index",
    "smoothed targets",
    "norm limited in each lookup",
    "multivariate normal",
    "gelu_new",
]


PARAMETRIZED = "weights of a parametrized layer"  # a leaf of `HotLine`: what the line computes anew


@dataclass(frozen=True, slots=True)
class LongKernel:
    """Convolutions of each channel of sequences by itself. `size`: of their kernels, the one with most of the time; `lines`: the user's
    lines that call them, the longest first.
    """

    size: int
    lines: tuple[HotLine, ...]


@dataclass(frozen=True, slots=True)
class ReorderedOperations:
    """Linear operations that would compute less in another order. `kind`: of `LinearOrder`; `layer`: its name in the model, or nothing;
    `lines`: the user's lines that compute them, the longest first.
    """

    kind: OrderKind
    layer: str
    lines: tuple[HotLine, ...]


@dataclass(frozen=True, slots=True)
class HotLine:
    """A line of the user's code in which stack samples found time between steps, or sleep or work inside them."""

    file: str
    line: int
    function: str
    leaf: str  # innermost frame, e.g. "write (logging/__init__.py:1100)"
    samples: int
    share: float
    io: bool  # file writes, prints, loggers
    collects: bool = False  # calls the garbage collector
    collection: CollectionCall | None = None  # the call that goes through a whole collection
    each_tensor: EachTensor = ""  # in a Python loop over the model's tensors: makes new ones, or changes them in place
    called_at: str = ""  # `file:line` of the training loop that leads there, if the line itself is not in it


@dataclass(frozen=True, slots=True)
class EvaluationWork:
    """What evaluations do beside the model. `samples`: of whole evaluations; `share`: of these, beside the model.

    The place and `leaf`: where most of these samples are; `lines`: all of them, the user's where one is below the evaluation's loop.
    `trainer`: the call that makes a library's trainer, where that collects all outputs.
    """

    file: str
    line: int
    function: str
    leaf: str
    samples: int
    share: float
    lines: frozenset[tuple[str, int]] = frozenset()
    trainer: CodePlace | None = None


@dataclass(frozen=True, slots=True)
class GeneratingShare:
    """Stack samples in evaluations, and the share of them in which a model of transformers generates text."""

    samples: int
    share: float


@dataclass(frozen=True, slots=True)
class HookPile:
    """Hooks of one function that a loop registers again and again. `lost_s`: what they add to a step, at least and at most.

    The place: of the call that registers them, else of the function, which is at `function_at`.
    """

    rank: int
    kind: str  # the method that registers them
    function: str
    function_at: str
    file: str
    line: int
    registered: bool  # the place is that of the call
    count: int  # at last, beyond the first on each object
    added: int  # in so many steps
    steps: int
    phase: Literal["forward", "backward", "optimizer", "gap"]
    lost_s: tuple[float, float]


@dataclass(frozen=True, slots=True)
class SecondComputation:
    """A line that computes what an `earlier` line of its function has computed.

    `recorded`: its result may have a backward pass of its own.
    """

    line: HotLine
    earlier: int
    recorded: bool


@dataclass(frozen=True, slots=True)
class FrozenCall:
    """A line that calls a network that does not learn, of this class. `seen` of the latest `inputs` were inputs before."""

    line: HotLine
    network: str
    inputs: int
    seen: int


@dataclass(frozen=True, slots=True)
class AttentionLines:
    """Where attention is computed in parts. The weights are the softmax's result.

    `line`: of the first product in the user's `own` code, else the one that leads to a transformers model or to `nn.MultiheadAttention`.
    """

    file: str
    line: int
    function: str
    samples: int
    by: Literal["own", "transformers", "multihead"]
    keeps_weights: bool = False  # returns or stores them
    drops_weights: bool = False  # a dropout layer is applied to them


@dataclass(frozen=True, slots=True)
class ComposedLines:
    """Where an operation is composed of elementary ones, or computed in a slow form. `line`: the first of them; `option`: the call that
    can choose another operation, where a library composes it.
    """

    file: str
    line: int
    function: str
    form: ComposedForm
    samples: int
    option: CodePlace | None = None


@dataclass(frozen=True, slots=True)
class IndependentLoop:
    """A loop whose iterations do not depend on each other. `backward_s`: its nodes' time in a backward pass."""

    file: str
    line: int
    function: str
    over: IteratesOver
    samples: int
    iterations: int  # for a backward pass
    nodes: int  # of autograd's graph, in an iteration
    backward_s: float
    grows: bool = False  # each iteration goes through all of the ones before: `decoder(words[:, :t])`
    share: float = 0.0  # of the forward pass, if the loop is most of it


@dataclass(frozen=True, slots=True)
class StreamSplit:
    """Where the source of a data set throws away processed samples of other ranks, or workers."""

    file: str
    line: int
    of_ranks: bool
    of_workers: bool


@dataclass(frozen=True, slots=True)
class Analysis:
    meta: Meta
    world_size: int
    step_time: StepTime
    throughput: Throughput
    values: Mapping[Scoped, float] = field(default_factory=dict)
    reasons: Mapping[tuple[Measure, Scope], str] = field(default_factory=dict)  # why a value is missing
    model: StepModel | None = None
    workers: WorkerModel | None = None  # None: no batch preparation was observed
    forecast: Forecast | None = None  # step time by workers per rank
    budget: Budget = field(default_factory=Budget)
    # seconds per step by rank and phase: own work beyond the median of the other ranks
    excess: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    loaders: tuple[LoaderFacts, ...] = ()
    stream_splits: Mapping[str, StreamSplit] = field(default_factory=dict)  # by the class of the loaders' data sets
    feed: InputSource | None = None  # None: torch's loaders feed every rank
    coverage: Coverage | None = None  # None: no step was seen
    recorder_error: str = ""  # why the recorder of a process gave up
    call_sites: CallSites = field(default_factory=CallSites)
    # by rank; only ranks whose batch size lies within a benchmark's sweep on this machine
    batch_curves: Mapping[int, BatchCurve] = field(default_factory=dict)
    published: PublishedSpeed | None = None  # None: nobody has published a result for a job like this
    sample: SampleCost | None = None  # None: no sample was profiled
    lock: SharedLock | None = None  # None: no worker was found waiting for a lock
    asking: SampleLine | None = None  # line at which workers wait for a server's answer
    collecting: SampleLine | None = None  # line of a data set that calls the garbage collector
    repeated: FrequentCall | None = None  # call that repeats the same work for each item
    table: FrequentCall | None = None  # library of tables from which items are taken row by row
    array: FrequentCall | None = None  # library of arrays in chunks that items are read from
    chunked: FrequentCall | None = None  # library of arrays in chunks of which items are parts
    chunked_arrays: tuple[ChunkedArray, ...] = ()  # that data sets keep open, the largest chunks first
    through: FrequentCall | None = None  # call with which items go through a whole collection
    holders: tuple[Holder, ...] = ()  # threads that ran while a training thread waited for the interpreter
    hot_lines: tuple[HotLine, ...] = ()
    waiting_lines: tuple[HotLine, ...] = ()  # where ranks sleep inside the step, longest first
    preparing_lines: tuple[HotLine, ...] = ()  # that prepare batches between fetch and model, longest first
    measuring_lines: tuple[HotLine, ...] = ()  # that evaluate the output between model and backward pass
    collection_lines: tuple[HotLine, ...] = ()  # that go through a whole collection, longest first
    computing_functions: tuple[HotLine, ...] = ()  # of the user's, by what they compute outside modules, longest first
    element_lines: tuple[HotLine, ...] = ()  # loops that handle tensors element by element, longest first
    repeated_lines: tuple[HotLine, ...] = ()  # lines that compute the same anew in every step, longest first
    part_lines: tuple[HotLine, ...] = ()  # that take or set parts of tensors in a loop, by the samples of the loop
    row_lines: tuple[HotLine, ...] = ()  # that take rows of tensors by a tensor of indices, longest first
    recurrent_lines: tuple[HotLine, ...] = ()  # that call recurrent layers for one time step at a time, longest first
    # of the job's own code, that set variables by which OpenMP binds threads to cores
    binding_lines: Mapping[str, CodePlace] = field(default_factory=dict)
    packing_lines: tuple[tuple[str, int], ...] = ()  # file and line, that pack sequences for an LSTM on a CPU
    drawing_lines: tuple[HotLine, ...] = ()  # of the job's samplers, longest first
    loss_lines: tuple[HotLine, ...] = ()  # that call a cross entropy, longest first
    foreign_lines: tuple[HotLine, ...] = ()  # that compute outside torch in the model, a loss or a hook
    hook_lines: tuple[HotLine, ...] = ()  # of hooks of modules and gradients that only watch, longest first
    piled_hooks: tuple[HookPile, ...] = ()  # those that add most to a step first
    attention_lines: tuple[AttentionLines, ...] = ()  # longest first
    selecting_lines: tuple[HotLine, ...] = ()  # that take rows of what layers have computed, with the samples of these
    prefix_lines: tuple[HotLine, ...] = ()  # that hand a model the whole sequence so far, in loops
    composed_lines: tuple[ComposedLines, ...] = ()  # longest first
    independent_loops: tuple[IndependentLoop, ...] = ()  # longest first
    # that go on from what their last iteration has computed and take nothing else; `share`: of the samples outside backward passes
    chained_loops: tuple[HotLine, ...] = ()
    repeating_lines: tuple[
        HotLine, ...
    ] = ()  # that call linear layers on rows which lines before have joined or repeated
    long_kernel: LongKernel | None = None  # of the long convolutions with most of the time
    reordered: ReorderedOperations | None = None  # whose other order spares most
    transforming_lines: tuple[HotLine, ...] = ()  # that call Fourier transforms; `leaf`: an awkward length
    joined_lines: tuple[HotLine, ...] = ()  # that copy all results so far in each iteration of a loop
    frozen_calls: tuple[FrozenCall, ...] = ()  # longest first
    second_computations: tuple[SecondComputation, ...] = ()  # longest first
    text_lines: tuple[HotLine, ...] = ()  # lines that format tensors as text, longest first
    invariant_lines: tuple[
        HotLine, ...
    ] = ()  # lines that compute the same in every round of a loop in the forward pass, longest first
    # the user's line in which most of the forward pass is spent, as far inside as it can be told; at most one per rank
    forward_lines: tuple[HotLine, ...] = ()
    recomputing_lines: tuple[HotLine, ...] = ()  # whose forward pass is checkpointed, most frequent first
    save_sites: tuple[SaveSite, ...] = ()
    evaluation_sites: tuple[EvaluationSite, ...] = ()  # most frequent first
    evaluation_work: EvaluationWork | None = None  # None: no stack sample is beside the model in an evaluation
    generating: GeneratingShare | None = None  # of evaluations; None: no stack sample in one
    # share of the evaluation batches from loaders that ran with gradients on; None: there were none
    evaluated_with_gradients: float | None = None
    deaths: tuple[Death, ...] = ()
    failure: Failure | None = None
    out_of_memory: OutOfMemory | None = None  # None: no GPU ran out of memory, or its numbers are unknown
    stalls: tuple[Stall, ...] = ()
    memory: tuple[MemoryTrend, ...] = ()
    # cores kept busy by processes of the job that are neither ranks nor workers, by command
    helpers: Mapping[str, float] = field(default_factory=dict)
    changes: tuple[SpeedChange, ...] = ()
    pulse: PeriodicStall | None = None
    nccl: NcclFacts | None = None  # None: NCCL logged nothing, or its log was not kept
    storage: DataMount | None = None  # storage of the training data; None: unknown
    capacities: tuple[Capacity, ...] = ()
    segments: tuple[Segment, ...] = ()
    timeline: tuple[TimelinePoint, ...] = ()
    history: History | None = None  # None: no step was seen
    facts: Mapping[str, Any] = field(default_factory=dict)
    overhead: Overhead = field(default_factory=Overhead)
    ranks: tuple[RankStrip, ...] = ()
    host: HostStrip | None = None
    gpus: tuple[GpuStrip, ...] = ()
    gpu_view: GpuView = field(default_factory=GpuView)
    duration_s: float = 0.0
    running: bool = False
    asked_to_end_s: tuple[float, ...] = ()  # since the job's start: Ctrl-C, a scheduler's signal
    nodes: tuple[NodeStrip, ...] = ()  # of a job on several hosts; empty for a job on one host
    # ranks on the host that the values of cores, memory and disks describe; empty: all ranks run on it
    host_ranks: tuple[int, ...] = ()
    _measured: ByMeasure[Scoped, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = self.values if isinstance(self.values, ByMeasure) else ByMeasure(self.values)
        object.__setattr__(self, "_measured", values)

    @property
    def ranks_of_host(self) -> int:
        """Number of ranks on the host that the values of cores and memory describe."""
        return len(self.host_ranks) or max(self.world_size, 1)

    def of_host(self, by_rank: Mapping[int, float]) -> dict[int, float]:
        """Returns the entries of ranks on that host."""
        return {rank: value for rank, value in by_rank.items() if not self.host_ranks or rank in self.host_ranks}

    @property
    def rank_facts(self) -> dict[int, RankFacts]:
        """Facts by rank; only ranks that wrote any."""
        return {int(name): cast(RankFacts, facts) for name, facts in self.facts.items() if name.isdecimal()}

    @property
    def on_gpu(self) -> bool:
        """True if any rank trains on a GPU."""
        return any(facts.get("cuda") for facts in self.rank_facts.values())

    @property
    def stopped_from_outside(self) -> bool:
        """True if Ctrl-C, a time limit or a scheduler ended the job and no rank failed by itself."""
        asked = [d for d in self.deaths if d.role == "rank"]
        if self._ended_as_asked(asked):
            return True
        if asked and (asked[0].signal == signal.SIGINT or asked[0].exception.startswith("KeyboardInterrupt")):
            return True
        if asked and self.meta.exit_signal == signal.SIGINT and self.meta.ended_ns is not None:
            # Ctrl-C reaches every process of a job, and multiprocessing's exit with code 1. A rank that crashed just before has a reason.
            lasted_s = (self.meta.ended_ns - self.meta.started_ns) / 1e9
            return lasted_s - asked[0].t_s <= _INTERRUPTED_S and not asked[0].failed_by_itself
        whole = self.world_size == 1 or self.meta.exit_signal == signal.SIGTERM or self.meta.exit_code in _STOPPED_CODES
        return bool(asked) and whole and all(d.signal == signal.SIGTERM and not d.oom_killed for d in asked)

    def _ended_as_asked(self, ranks: list[Death]) -> bool:
        """True if the job was asked to end and then ended. It may take up to two minutes and exit with any code."""
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
        """The value for the job or for one rank; None if it was not measured."""
        return self._measured.row(measure).get(JOB if rank is None else rank)

    @overload
    def value(self, measure: JobMeasure, rank: None = None) -> float: ...
    @overload
    def value(self, measure: RankMeasure, rank: int) -> float: ...
    def value(self, measure: Measure, rank: int | None = None) -> float:
        """Like `get`, for a measure that the rule lists under `needs`. Raises KeyError if it is absent."""
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
        """Reason for each missing measure; the last rank's if several ranks have one."""
        return {measure: why for (measure, _), why in self.reasons.items()}

    def training_loader(self, rank: int) -> LoaderFacts | None:
        return training_loader(self.loaders, rank)
