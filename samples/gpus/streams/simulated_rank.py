"""One rank of a simulated job: what its calls of torch cost the host, and what they queue on its streams."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import Any

from samples.gpus.streams.description import Job, Pass
from samples.gpus.streams.timelines import Host, Work

MS, US = 1e6, 1e3
BURST_KERNELS = 48  # at most; the queue between host and GPU is counted in kernels
PARTS = 10  # of forward and backward, between which collectives are issued
COLLECTIVE_US = 14.0  # of the host, to issue one from C++
REPLAY_US = 30.0
COPY_GB_PER_S_PER_LANE = {3: 0.75, 4: 1.5, 5: 3.0}
STAMPED_FIRST, STAMPED_EVERY = 10, 100  # DDP times its first iterations, and then one in a hundred
EAGER_STEPS = 8  # before a step is captured
JITTER = 0.01


class SimulatedRank:
    """Queues the work of one rank's step on its host's device."""

    def __init__(self, job: Job, host: Host) -> None:
        self.job, self.host, self.rank = job, host, host.rank
        self.chance = random.Random(1009 * host.rank + 7)
        self.shared = random.Random(5)  # the same on all ranks
        self.step = self.calls = self.iteration = 0
        self.capturing = False
        self.graded = True  # autograd records; not in an evaluation
        self.size = 1.0  # of this step's batch
        self.exchanging = True  # gradients are exchanged after this backward pass: it is the step's last
        self.gradient_ready: Any = None  # called with each part of the backward pass
        self.collective: Any = None  # (kind, norm?) -> None, the recorder's wrapper around `issue`
        self.stream = "compute"  # the current one; collectives of sharded models and engines are called on another
        self.stream_waits: Any = self.join  # torch.cuda.Event.wait with the recorder's wrapper
        self._issued: list[Work] = []
        self._gathered: list[Work] = []  # parameters of units that have yet to run
        self._left: list[Work] = []  # the ends of the latest units, which free their parameters
        self._hops: dict[tuple[int, int], int] = {}
        self._stamped: dict[str, Any] = {}
        self.stamps: dict[str, int] = {}  # as DDP's logger reports them

    # -- the GPU ---------------------------------------------------------------------------------------------------------------

    def slowness(self) -> float:
        gpu = self.job.gpu
        clocks = gpu.clock.get(self.rank, 1.0) * gpu.memory_clock.get(self.rank, 1.0)
        stretched = gpu.slower.get(self.rank, 1.0) / clocks
        return stretched / (1.0 - gpu.stranger.get(self.rank, 0.0))

    def compute(self, part: Pass, share: float = 1.0, *, sized: bool = True) -> None:
        """Launches this share of the pass's kernels."""
        kernels = max(1, round(part.kernels * share))
        wobble = 1.0 + self.chance.uniform(-JITTER, JITTER)
        each_ns = part.gpu_ms * MS * share / kernels * self.slowness() * wobble * (self.size if sized else 1.0)
        launch_ns = part.launch_us * US * (1.0 + self.chance.uniform(-0.05, 0.05))
        if self.capturing:
            self.host.work(kernels * launch_ns)
            return
        sides = [f"side-{number}" for number in range(1, self.job.streams)]
        for side in sides:  # a stream beside the current one first waits for what that has to do
            self.host.mark(stream=side, after=(self.host.mark(),))
        turns, most = itertools.cycle(("compute", *sides)), min(BURST_KERNELS, math.ceil(kernels / self.job.streams))
        while kernels > 0:
            burst = min(kernels, most)
            self.host.launch(burst, each_ns, launch_ns, stream=next(turns))
            kernels -= burst
        self.join(*(self.host.mark(stream=side) for side in sides))

    def replay(self, *parts: Pass) -> None:
        """Replays a graph of these passes."""
        wobble = self.slowness() * self.size * (1.0 + self.chance.uniform(-JITTER, JITTER))
        launch_ns = REPLAY_US * US
        for part in parts:
            self.host.replay(part.kernels, part.gpu_ms * MS * wobble / part.kernels, launch_ns)
            launch_ns = 0.0

    def copy(self, megabytes: float, *, pinned: bool, non_blocking: bool) -> None:
        """Copies a batch to the GPU. From pageable memory, or where the caller asks for it, the host waits for the end."""
        kind = self.job.gpu.kind
        lanes = self.job.gpu.link_width.get(self.rank, 16)
        seconds = megabytes / 1e3 / (COPY_GB_PER_S_PER_LANE[kind.gen] * lanes) / (1.0 if pinned else 0.35)
        work = self.host.launch(1, 1e9 * seconds, 12 * US)
        if not (pinned and non_blocking):
            self.host.wait(work)

    def read(self) -> None:
        """Reads a value from the GPU: waits for all that is queued."""
        self.host.wait(self.host.launch(1, 2 * US, 8 * US))

    # -- collectives ------------------------------------------------------------------------------------------------------------

    def meet(self, wire_ns: float, launch_us: float = COLLECTIVE_US, after: tuple[Work, ...] | None = None) -> Work:
        """Issues a collective of all ranks on the stream of NCCL, after what was queued for the GPU so far, or after other work."""
        self.calls += 1
        ready = (self.host.mark(),) if after is None else after
        size = self.job.ranks
        return self.host.meet(("all", self.calls), size, wire_ns, launch_us * US, *ready, stream="exchange")

    def join(self, *works: Work) -> None:
        """What is queued from now on waits for these collectives. The host does not."""
        if works:
            self.host.mark(after=works)

    def _normalise(self) -> None:
        def issue() -> Work:
            work = self.meet(self.job.exchange.norm_us * US)
            self.join(work)  # within the call, as in torch's blocking collectives
            return work

        self.collective("norm", issue)

    def _route(self) -> None:
        """Sends tokens to the ranks of their experts, or back."""

        def issue() -> Work:
            work = self.meet(self.job.exchange.expert_us * US)
            self.join(work)
            return work

        self.collective("expert", issue)

    def send_parameters(self) -> None:
        """Broadcasts the parameters that each rank has updated, one call for each rank, and waits for all on the stream."""
        wire_ns = self.job.exchange.parameters_ms * MS / self.job.ranks
        for _ in range(self.job.ranks):
            self.collective("parameters", self._sent(wire_ns))

    def _sent(self, wire_ns: float) -> Callable[[], Work]:
        def issue() -> Work:
            work = self.meet(wire_ns)
            self.join(work)
            return work

        return issue

    def _meet_amid(self, part: int) -> None:
        """The collectives of layers in this part of a pass."""
        exchange = self.job.exchange
        for layers, meet in ((exchange.norm_layers, self._normalise), (2 * exchange.expert_layers, self._route)):
            for _ in range((part + 1) * layers // PARTS - part * layers // PARTS if self.job.ranks > 1 else 0):
                meet()

    def _hop(self, sender: int, *, back: bool = False) -> None:
        """This rank's part in handing a micro-batch from one stage to the next, or gradients from that one back."""
        receiver = sender - 1 if back else sender + 1
        if not 0 <= receiver < self.job.ranks or not 0 <= sender < self.job.ranks:
            return
        pair = (sender, receiver)
        self._hops[pair] = self._hops.get(pair, 0) + 1
        key = ("hop", *pair, self._hops[pair])
        wire_ns = self.job.exchange.hop_ms * MS
        work = self.host.meet(key, 2, wire_ns, COLLECTIVE_US * US, self.host.mark(), stream=f"hop-{sender}-{receiver}")
        if receiver == self.rank:
            self.join(work)

    def _unit(self, kind: str, share: float, after: tuple[Work, ...] | None = None) -> Work:
        """A collective of one unit's sharded parameters or gradients; the three of a step share its wire time."""
        wire_ns = self.job.exchange.wire_ms * MS * share / 3
        work: Work = self.collective(kind, lambda: self.meet(wire_ns, 40.0, after))
        return work

    def _gather(self) -> None:
        """Prefetches the next unit's parameters, which needs the memory of the unit before the current one."""
        self._gathered.append(self._unit("gather", 1 / PARTS, tuple(self._left[-2:-1])))

    def _sharded_part(self, part: int) -> None:
        """The current unit of a sharded pass waits for its own parameters; those of the next one are on their way."""
        if part == 0:
            self._gather()
        if part + 1 < PARTS:
            self._gather()
        self.stream_waits(self._gathered.pop(0))

    def _leave_unit(self) -> None:
        if self.job.ranks > 1 and self.job.exchange.style == "sharded":
            self._left = [*self._left[-1:], self.host.mark()]

    # -- the passes -------------------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        """The forward pass, with what DistributedDataParallel, sharded parameters and batch norm do in it."""
        job, ranks, style = self.job, self.job.ranks, self.job.exchange.style
        self.size = 1.0 + self.shared.uniform(-job.varies, job.varies)
        if job.uneven:
            self.size += self.chance.uniform(-job.uneven, job.uneven)
        if ranks > 1 and style == "ddp" and self.exchanging:
            self._begin_iteration()
        if job.graph in ("layers", "forward") and self.step >= EAGER_STEPS:
            self.replay(job.forward)
            return
        if style == "pipeline":
            self._hop(self.rank - 1)
        for part in range(PARTS):
            if ranks > 1 and style == "sharded":
                self._sharded_part(part)
            self.compute(job.forward, 1 / PARTS)
            self._leave_unit()
            self._meet_amid(part)
        if style == "pipeline":
            self._hop(self.rank)

    def evaluate(self) -> None:
        """The forward pass alone, in which batch norm uses its running statistics."""
        for part in range(PARTS):
            if self.job.ranks > 1 and self.job.exchange.style == "sharded":
                self._sharded_part(part)
            self.compute(self.job.forward, 1 / PARTS)
            self._leave_unit()

    def save(self) -> None:
        """Copies the state from the GPU, which waits for all that is queued, and writes it to a file."""
        self.read()
        self.host.work(self.job.pauses.save_ms * MS)

    def backward(self) -> None:
        """The backward pass, and the exchange of gradients behind it."""
        job, style = self.job, self.job.exchange.style
        exchanges = job.ranks > 1 and self.exchanging and style != "pipeline"
        self._issued = []
        stamps = self._stamped if exchanges and self._stamped else None
        if stamps is not None:
            stamps["compute_start"], stamps["host_start"] = self.host.mark(), self.host.now_ns
        if job.graph == "layers" and self.step >= EAGER_STEPS:
            self.replay(job.backward)
        else:
            self._backward_parts(stamps)
        if stamps is not None:
            stamps["compute_end"], stamps["host_end"] = self.host.mark(), self.host.now_ns
        if exchanges and job.graph == "layers" and self.step >= EAGER_STEPS:
            if stamps is not None:
                stamps["comm_start"], stamps["host_comm"] = self.host.mark(), self.host.now_ns
            self._issued.append(self.meet(job.exchange.wire_ms * MS))
        if exchanges and style == "ddp":
            self.join(*self._issued)
        elif exchanges:
            self.stream_waits(*self._issued[-1:])  # the stream of collectives works in order
        if stamps is not None:
            stamps["comm_end"], stamps["host_comm_end"] = self.host.mark(), self.host.now_ns

    def _backward_parts(self, stamps: dict[str, Any] | None) -> None:
        job, exchange = self.job, self.job.exchange
        piped = exchange.style == "pipeline"
        exchanges = job.ranks > 1 and self.exchanging and not piped
        if piped:
            self._hop(self.rank + 1, back=True)
        for part in range(PARTS):
            if job.ranks > 1 and exchange.style == "sharded":
                self._sharded_part(part)
            self.compute(job.backward, 1 / PARTS)
            self._leave_unit()
            self._meet_amid(PARTS - 1 - part)
            if self.gradient_ready is not None:
                self.gradient_ready(part)
            if not exchanges:
                continue
            if exchange.style == "sharded":
                self._issued.append(self._unit("scatter", 1 / PARTS))
                continue
            full = (part + 1) * exchange.buckets // PARTS - part * exchange.buckets // PARTS
            for _ in range(full):
                if stamps is not None and "comm_start" not in stamps:
                    stamps["comm_start"], stamps["host_comm"] = self.host.mark(), self.host.now_ns
                self._issued.append(self._bucket())
        if piped:
            self._hop(self.rank, back=True)

    def _bucket(self) -> Work:
        wire_ns = self.job.exchange.wire_ms * MS / self.job.exchange.buckets
        if self.job.exchange.style == "engine":
            work: Work = self.collective("reduce", lambda: self.meet(wire_ns))
            return work
        return self.meet(wire_ns)

    # -- DistributedDataParallel's times -----------------------------------------------------------------------------------------

    def _begin_iteration(self) -> None:
        """As in its reducer: a timed iteration is read at the next forward pass, which waits for its last event."""
        timed, self._stamped = self._stamped, {}
        if timed.get("comm_end") is not None:
            self.host.wait(timed["comm_end"])
            self.stamps = _stamps_of(timed)
        self.iteration += 1
        if self.iteration <= STAMPED_FIRST or self.iteration % STAMPED_EVERY == 0:
            self._stamped = {"iteration": self.iteration, "forward_start": self.host.mark()}
        self.stamps["iteration"] = self.iteration


def _stamps_of(timed: dict[str, Any]) -> dict[str, int]:
    def apart(first: str, last: str) -> int:
        return int(timed[last].end_ns - timed[first].end_ns)

    return {
        "forward_compute_time": apart("forward_start", "compute_start"),
        "backward_compute_time": apart("compute_start", "compute_end"),
        "backward_comm_time": apart("comm_start", "comm_end"),
        "backward_compute_comm_overlap_time": max(0, apart("comm_start", "compute_end")),
        "backward_compute_time_start": timed["host_start"],
        "backward_compute_time_end": timed["host_end"],
        "backward_comm_time_start": timed["host_comm"],
        "backward_comm_time_end": timed["host_comm_end"],
    }
