"""The recording of one run as plain values: the only input of the analysis. Times are monotonic ns unless a name says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.probes.documents.event_documents import KINDS, EventDocument
from rn50_advisor.probes.documents.loader_documents import PartName
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts

Role = Literal["rank", "worker", "other"]
Table = NDArray[np.void]  # structured array; columns as rn50_advisor.probes.rank.layout names them
# Offset of process ids for each further node of a merged job; the kernel's ids end at 4 million.
NODE_PIDS = 10_000_000


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    role: Role
    rank: int | None  # for a worker, the rank that it works for
    local_rank: int | None
    worker: int | None
    parent_pid: int
    command: str
    first_seen_ns: int
    ended_ns: int | None = None
    exit_code: int | None = None  # None while it runs, or if it could not be observed
    exit_signal: int | None = None
    clean_exit: bool | None = None  # True: the interpreter shut down by itself
    oom_killed: bool = False


Data = TypeVar("Data", bound=EventDocument)
Data_co = TypeVar("Data_co", bound=EventDocument, covariant=True)


@dataclass(frozen=True, slots=True)
class Event(Generic[Data_co]):
    """A single event: a stall with its stacks, a death, a stack sample, a probe that was switched off, the end of the recording."""

    t_ns: int
    kind: str  # kind of its document; a newer advisor may write unknown ones
    pid: int | None
    rank: int | None
    data: Data_co


AnyEvent = Event[EventDocument]


def happened(
    document: type[Data], data: Data, *, t_ns: int, pid: int | None = None, rank: int | None = None
) -> Event[Data]:
    """Makes an event of this document's kind."""
    return Event(t_ns, KINDS[document], pid, rank, data)


def events_of(events: Iterable[AnyEvent], document: type[Data]) -> list[Event[Data]]:
    """The events of one kind, in order."""
    kind = KINDS[document]
    return [cast("Event[Data]", event) for event in events if event.kind == kind]


def data_of(event: AnyEvent, document: type[Data]) -> Data | None:
    """The event's data; None if the event is of another kind."""
    return cast(Data, event.data) if event.kind == KINDS[document] else None


@dataclass(frozen=True, slots=True)
class Series:
    """All readings of one metric in one scope, oldest first."""

    t_ns: NDArray[np.int64]
    value: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of the job's own code with secrets masked, as it was when the recorder first mentioned it."""

    path: str
    sha256: str  # of the file's bytes, to detect changes before the file is edited
    text: str
    edited: bool = False  # changed after the job had begun: line numbers may not match the running code


@dataclass(frozen=True, slots=True)
class Meta:
    name: str
    argv: tuple[str, ...]
    cwd: str
    host: str
    started_unix_s: float
    started_ns: int
    last_ns: int  # time of the last record
    ended_ns: int | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    advisor_version: str = ""
    launch_error: str | None = None
    recording_stopped_ns: int | None = None
    recording_stopped_reason: str | None = None
    processes_left_out: int = 0  # ended processes that the run no longer lists; the next field: end of the last one
    left_out_until_ns: int | None = None
    environment: MachineFacts = field(default_factory=MachineFacts)
    agent: Mapping[str, float] = field(default_factory=dict)  # cpu_s, wall_s, lost_records, startup_s
    traced: bool = False  # read from the files of a profiler: a few steps of a job that the advisor did not watch


@dataclass(frozen=True, slots=True)
class Recording:
    meta: Meta
    processes: tuple[Process, ...] = ()
    facts: Mapping[int, RankFacts] = field(default_factory=dict)  # by pid
    # by rank; columns: STEP_FIELDS, flags, count (steps folded into the row, 1 for a raw step; times are sums over them)
    steps: Mapping[int, Table] = field(default_factory=dict)
    gpu_steps: Mapping[int, Table] = field(default_factory=dict)
    comm: Mapping[int, Table] = field(default_factory=dict)
    collectives: Mapping[int, Table] = field(default_factory=dict)  # by rank; only steps that called some from Python
    spans: Mapping[int, Table] = field(default_factory=dict)
    batches: Mapping[int, Table] = field(default_factory=dict)  # by rank; columns: BATCH_FIELDS, flags, pid
    # by rank, if samples were profiled; columns: PROFILED_FIELDS or PART_FIELDS, flags. A part is identified by its number.
    looks: Mapping[int, Table] = field(default_factory=dict)
    parts: Mapping[int, Table] = field(default_factory=dict)
    part_names: Mapping[int, PartName] = field(default_factory=dict)
    samples: Mapping[tuple[str, str], Series] = field(default_factory=dict)
    events: tuple[AnyEvent, ...] = ()
    gaps: tuple[ProbeGap, ...] = ()
    sources: tuple[Source, ...] = ()
    tried: Tried | None = None  # fixes of this run, tried after it
    # by rank: phase, step, since_ns; as last seen
    positions: Mapping[int, tuple[str, int, int]] = field(default_factory=dict)
    # one per host of a merged job on several hosts; empty for a job on one host
    nodes: tuple[Node, ...] = ()

    @property
    def shown_node(self) -> Node | None:
        """The node that this recording's samples of host, cores and disks come from; None: the job has one host."""
        return next((node for node in self.nodes if node.shown), None)


@dataclass(frozen=True, slots=True)
class Clock:
    """Conversion of a node's clock to the first node's: t + offset_ns + drift * (t - since_ns)."""

    basis: Literal["own", "collectives", "wall clock"] = "own"
    offset_ns: int = 0
    drift: float = 0.0
    since_ns: int = 0
    uncertainty_ns: int = 0


@dataclass(frozen=True, slots=True)
class Node:
    """One host of a job on several, as recorded by its own agent. Times are on the first node's clock."""

    number: int
    host: str  # unique among the nodes of a job
    ranks: tuple[int, ...]
    recording: Recording
    clock: Clock = field(default_factory=Clock)
    shown: bool = False
    lost_ns: int | None = None  # the node sent nothing after this time although the job went on
