"""The description of a simulated job: what host and GPU do in a step, what feeds them, and in which collectives ranks meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from samples.gpus.machines import A100, Kind


@dataclass(frozen=True)
class Pass:
    """One part of a step: `kernels` that take the GPU `gpu_ms` together, and the host `launch_us` each."""

    kernels: int
    gpu_ms: float
    launch_us: float


@dataclass(frozen=True)
class Loader:
    """Workers that make a batch in `batch_ms` each, and the training thread's part in a fetch."""

    batch_ms: float = 150.0
    workers: int = 8
    fetch_ms: float = 0.4
    spread: float = 0.1  # how much longer or shorter single batches take
    slow: Mapping[int, float] = field(default_factory=dict)  # by rank, how much longer its batches take
    storage_share: float = 0.0  # of a batch's time, spent waiting for storage


@dataclass(frozen=True)
class Exchange:
    """Collectives. `wire_ms`: all gradients of a step, if every rank is there.

    `sharded` gathers each unit's parameters in forward and backward (FSDP); `engine` exchanges buckets by calls from Python (DeepSpeed);
    in a `pipeline` each rank is a stage, which hands on activations of a micro-batch, and gradients back.
    """

    style: Literal["ddp", "sharded", "engine", "pipeline"] = "ddp"
    wire_ms: float = 8.0
    buckets: int = 5
    norm_layers: int = 0  # synchronised batch norms: a collective each in forward and in backward
    norm_us: float = 25.0  # on the wire, each
    expert_layers: int = (
        0  # layers whose tokens go to experts on other ranks: two all-to-alls each in forward and in backward
    )
    expert_us: float = 200.0  # on the wire, each all-to-all
    parameters_ms: float = (
        0.0  # after the update each rank broadcasts the parameters whose optimizer state it holds (ZeRO)
    )
    hop_ms: float = 0.3  # between two stages of a pipeline


@dataclass(frozen=True)
class Gpu:
    """What a rank's GPU and its driver do. `clock`: share of the usual clock by rank, which slows its kernels in proportion."""

    kind: Kind = A100
    clock: Mapping[int, float] = field(default_factory=dict)
    held_by: Literal["", "heat", "power cap", "own limit", "unknown"] = ""  # own limit: nobody lowered it
    stranger: Mapping[int, float] = field(default_factory=dict)  # by rank, the share that another process takes
    link_width: Mapping[int, int] = field(default_factory=dict)  # by rank, PCIe lanes in use
    slower: Mapping[int, float] = field(
        default_factory=dict
    )  # by rank, how much longer kernels take for no reason that shows
    memory_clock: Mapping[int, float] = field(
        default_factory=dict
    )  # the same for the memory's clock; kernels wait for memory
    lists_processes: bool = True  # the driver, to this container
    utilisation_slot_ms: float = 1.0  # a kernel in it makes it busy
    utilisation_window_s: float = 1 / 6  # of which the driver tells the share of busy slots; on some boards a second


@dataclass(frozen=True)
class Pauses:
    """What interrupts training, each after so many steps; 0: never."""

    evaluates_every: int = 0
    evaluated: int = 20  # batches, forward passes alone, on each rank
    saves_every: int = 0
    save_ms: float = 0.0  # of rank 0, which writes the file while the others go on to their next collective
    alone: bool = False  # rank 0 evaluates, and the others go on to their next collective


@dataclass(frozen=True)
class Job:
    """A training job. Times are those of one micro-batch where nothing else is said."""

    ranks: int = 1
    seconds: float = 24.0
    steps_max: int = 1500
    batch: int = 256
    micro_batches: int = 1
    forward: Pass = Pass(420, 38.0, 8.0)
    backward: Pass = Pass(800, 76.0, 5.0)
    optimizer: Pass = Pass(30, 3.0, 12.0)
    batch_mb: float = 38.0
    pinned: bool = True
    non_blocking: bool = True
    loader: Loader = Loader()
    exchange: Exchange = Exchange()
    gpu: Gpu = Gpu()
    gap_ms: float = 0.3  # of the loop between optimizer and next fetch: schedule, counters
    reads_every: int = 50  # steps between log lines, which read the loss from the GPU; 0: none
    read_ms: float = 0.4  # of the host for the line itself
    scaled: bool = False  # a gradient scaler reads in each step whether it found infinities
    graph: Literal["", "step", "layers", "forward"] = (
        ""  # what is captured: the whole step, forward and backward ("reduce-overhead"), or the forward pass alone
    )
    streams: int = 1  # on which the kernels of a pass are launched by turns; they meet at its end
    compiled_update: bool = False  # the optimizer's step is compiled and calls no hook
    update_in_backward: bool = False  # a hook of each gradient runs its own optimizer
    varies: float = 0.0  # how much batches differ in length, as a share of the kernels' time
    uneven: float = 0.0  # the same, from rank to rank in one step
    exchanges_each: bool = False  # gradients are exchanged after each micro-batch
    reads_each_batch: bool = False  # the loss is read after each micro-batch
    pauses: Pauses = Pauses()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Story:
    """A job and the right verdict: rules of which one must be named, or a state. `without`: the same job without the fault."""

    title: str
    job: Job
    truth: tuple[str, ...]
    without: Job | None = None
    ranks: tuple[int, ...] | None = None  # which the verdict must name
    also: tuple[str, ...] = ()  # findings besides the verdict's that are true

    @property
    def is_sound(self) -> bool:
        return self.truth[0] == "healthy"
