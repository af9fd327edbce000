"""The data of events by kind. Code uses the types; the names of kinds occur in run files and only here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from .bounded_numbers import Number, Whole
from .code_places import CollectionCall, ReadWhole, StackFrame, UserLine
from .collective_documents import FlightDump
from .rank_documents import MountFacts


class AgentCrash(TypedDict, total=False):
    error: str


class EndRequest(TypedDict, total=False):
    """A request to end the job, and its signal."""

    signal: Whole | None


class DataMounted(MountFacts, total=False):
    """A file system with open data files."""


class NotedDeath(TypedDict, total=False):
    """A process's death. `first`: it is the first of the ranks that did not exit normally."""

    role: str
    exit_code: Whole | None
    signal: Whole | None
    clean_exit: bool | None
    orderly: bool
    first: bool


class FlightDumps(TypedDict, total=False):
    """Flight recorder dumps of the watchdogs that ended the job, by rank."""

    ranks: dict[str, FlightDump]


class TracedWindow(TypedDict, total=False):
    """The agent's summary of a deep window's trace. `DeepWindow` of advisor/model/gpu/kernel_classes.py reads it."""

    rank: Whole


class GpuProcess(TypedDict, total=False):
    """A process that computes on a GPU. `name` is the kernel's short name: command lines may hold secrets. `own`: the job's."""

    pid: Whole
    user: str
    name: str
    mem_bytes: Number | None
    own: bool


class GpuProcesses(TypedDict, total=False):
    """The processes on a GPU, whenever they have changed."""

    gpu: Whole
    processes: Sequence[GpuProcess]


class _Frames(TypedDict):
    frames: list[StackFrame]


class KnownStack(_Frames, total=False):
    """Frames, innermost first, and the user's innermost line."""

    user: UserLine | None


class InterpreterHolder(KnownStack, total=False):
    thread: str | None


class _InterpreterWaitSamples(TypedDict):
    looks: Whole
    waiting: Whole


class InterpreterWaitSamples(_InterpreterWaitSamples, total=False):
    """Number of samples of a training thread that found it waiting for the interpreter lock."""

    since_ns: Whole


class LeftProcess(TypedDict, total=False):
    pid: Whole
    command: str


class LeftRunning(TypedDict, total=False):
    processes: list[LeftProcess]


class SampleMaking(TypedDict, total=False):
    """A sample of a thread that makes a batch. `callers`: the user's lines that called the innermost one, innermost first;
    `awaits`: the lock or server it waits for; `asks`: it waits for a server's answer;
    `repeats`: the call in which it does the same work for each item; `whole`: what this call reads of which an item is a part;
    `table`: the library of a table from which it takes a row; `collection`: the call that goes through a whole collection;
    `array`: the library of an array in chunks that it reads; `chunked`: the same, of single items; `collects`: its own code called
    the garbage collector.
    """

    user: UserLine | None
    callers: list[StackFrame]
    awaits: str | None
    asks: bool
    repeats: str
    whole: ReadWhole
    table: str
    collection: CollectionCall
    array: str
    chunked: str
    collects: bool


class ArrayLayout(TypedDict):
    """How an array that a data set keeps open lies on disk. `rows`: its length; `chunk`: the shape of what is read as a whole;
    `packed`: it is compressed.
    """

    name: str
    rows: Whole
    chunk: list[Whole]
    packed: bool


class ChunkedArray(ArrayLayout, total=False):
    """An array in chunks. `itemsize`: bytes of one number, which older runs do not tell."""

    itemsize: Whole


class PrintedLines(TypedDict, total=False):
    """The job's own output about its failure."""

    lines: list[str]


class NcclPrinted(TypedDict, total=False):
    lines: list[str]


class OomKill(TypedDict, total=False):
    role: str
    command: str


class _Counted(TypedDict):
    count: Whole


class ProfiledStack(KnownStack, _Counted, total=False):
    """`awake`: number of samples of this stack in a second profile, which leaves out sleeping threads."""

    awake: Whole


class CountedMaking(SampleMaking, _Counted, total=False):
    """What this number of a profile's samples showed of the making of a batch."""


class _StackProfile(TypedDict):
    looks: Whole
    stacks: list[ProfiledStack]


class StackProfile(_StackProfile, total=False):
    """The training thread's most frequent stacks over some seconds; `looks` counts all samples. `making`: of all samples, those that found
    it making a batch; absent if workers make them.
    """

    outside_share: Number | None
    making: list[CountedMaking]


class RecorderCost(TypedDict, total=False):
    share: Number
    budget: Number


class ShedProbe(TypedDict, total=False):
    probe: str
    share: Number
    budget: Number


class StackSample(KnownStack, total=False):
    """One sample of a training thread between the model's phases."""

    phase: str
    label: str | None
    step: Whole
    phase_for_s: Number


class CallUnderWay(TypedDict, total=False):
    """The rank's latest collective; `inside_s`: seconds it has been inside."""

    begun: Whole
    kind: str
    group: Whole
    size: Whole
    inside_s: Number | None


class _StalledRankRow(TypedDict):
    rank: Whole


class StalledRankRow(_StalledRankRow, total=False):
    """One rank of a stall: its position, its thread's kernel state (`state`, `wchan`), and its own notes."""

    pid: Whole
    phase: str
    step: Whole
    since_ns: Whole
    since_s: Number
    seen_ns: Whole
    state: str | None
    wchan: str
    cpu_s: Number
    collective: CallUnderWay
    flight: list[FlightDump]
    gap: str
    compiles: bool
    thread: str | None
    frames: list[StackFrame]
    user: UserLine | None


class StallSeen(TypedDict, total=False):
    """One sample of the stall `id`."""

    id: Whole | str
    stalled_s: Number
    ranks: list[StalledRankRow]


class StallEnd(TypedDict, total=False):
    id: Whole | str
    stalled_s: Number


EventDocument = (
    AgentCrash | ChunkedArray | EndRequest | DataMounted | NotedDeath | TracedWindow | FlightDumps | GpuProcesses | InterpreterHolder
    | InterpreterWaitSamples | LeftRunning | SampleMaking | NcclPrinted | OomKill | PrintedLines | StackProfile | RecorderCost
    | ShedProbe | StackSample | StallSeen | StallEnd
)  # fmt: skip

KINDS: Mapping[type, str] = {
    AgentCrash: "agent_crash",
    ChunkedArray: "chunked_array",
    EndRequest: "asked_to_end",
    DataMounted: "data_mount",
    NotedDeath: "death",
    TracedWindow: "deep",
    FlightDumps: "flight",
    GpuProcesses: "gpu_processes",
    InterpreterHolder: "holder",
    InterpreterWaitSamples: "interpreter",
    LeftRunning: "left_running",
    SampleMaking: "making",
    NcclPrinted: "nccl_log",
    OomKill: "oom_kill",
    PrintedLines: "output",
    StackProfile: "profile",
    RecorderCost: "recorder_cost",
    ShedProbe: "shed",
    StackSample: "stack",
    StallSeen: "stall",
    StallEnd: "stall_end",
}
