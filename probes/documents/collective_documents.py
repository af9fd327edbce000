"""A rank's documents about its collectives: what calls them, NCCL's times, and its position in a stall."""

from __future__ import annotations

from typing import TypedDict

from .bounded_numbers import Flag, Number, Whole
from .code_places import CodePlace, StackFrame

FlightDump = dict[str, object]  # torch's own document


class ReplicaFacts(CodePlace, total=False):
    """A DataParallel module."""

    devices: Whole


class DdpFacts(CodePlace, total=False):
    """A DistributedDataParallel's logged options, and the results of its searches for unused parameters."""

    world_size: Whole
    backend_name: str | None
    module_name: str | None
    bucket_cap_bytes: Whole
    find_unused_parameters: Flag
    gradient_as_bucket_view: Flag
    static_graph: Flag
    has_sync_bn: Flag
    comm_hook: str | None
    total_parameter_size_bytes: Whole
    num_parameter_tensors: Whole
    dtypes: str | None
    device: str | None
    synced_buffers: Whole  # those broadcast before forward passes, and of them batch norm's statistics
    buffer_bytes: Whole
    norm_buffers: Whole
    norm_buffer_bytes: Whole
    has_forward_sync: bool  # it has `forward_sync_buffers`, as newer torch has
    bucket_bytes: list[Whole]
    searched_iterations: Whole
    iterations_with_unused: Whole


class CollectiveSite(CodePlace, total=False):
    """A line that calls a collective, and sums over its calls."""

    function: str
    library: str
    kind: str
    backend: str
    group_size: Whole
    calls: Whole
    bytes: Whole
    ns: Whole
    held_ns: list[Whole]  # what blocked the rank: in forward, backward, optimizer with clipping, gap, elsewhere
    in_module: bool  # the first call came from within a module's call
    for_metrics: bool  # the library exchanges metrics, wherever it is called


class TimedRow(TypedDict):
    """`ms`: sum over all calls; `ranks`: the group's ranks as torch writes them."""

    group: str
    name: str
    bytes: Whole
    calls: Whole
    ms: Number
    least_ms: Number
    ranks: str


class TimedCollectives(TypedDict, total=False):
    """`span_s`: time from the first queued call to the last."""

    span_s: Number
    ms: Number
    calls: Whole
    untimed: Whole
    rows: list[TimedRow]


class StalledPosition(TypedDict, total=False):
    """The position of a rank that has been at one place since `since_ns`."""

    since_ns: Whole
    dumps: list[FlightDump]
    stack: list[StackFrame]
