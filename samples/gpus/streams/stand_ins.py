"""What the recorder sees of torch in one simulated rank: its classes and functions, whose calls take time on the rank's host and streams.

The recorder is the real one, with its own wrappers around these calls: marks, pacing of events and observed steps are what they
are in a job. Its own cost is that of the calls it makes: reading a CPU clock, recording and querying an event.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rn50_advisor.probes.rank import layout, loader_marks, pass_marks, recorder, step_schedule, summed_facts
from rn50_advisor.probes.rank.comm import collective_marks, collective_patches, stream_waits
from rn50_advisor.probes.rank.gpu import device_syncs
from rn50_advisor.probes.rank.gpu.gpu_events import GpuTimes
from rn50_advisor.probes.rank.patches import checkpoint_saves, mark_wrappers, torch_patches
from rn50_advisor.probes.rank.ring import Ring
from rn50_advisor.probes.rank.steps import mark_buffer
from samples.gpus.streams.description import Loader
from samples.gpus.streams.simulated_rank import MS, US, SimulatedRank
from samples.gpus.streams.timelines import Work, World

CLOCKED = (
    recorder, step_schedule, loader_marks, pass_marks, summed_facts, mark_buffer, mark_wrappers, device_syncs, collective_marks,
    stream_waits, checkpoint_saves,
)  # fmt: skip
RECORD_US, QUERY_US, CLOCK_US = 6.0, 1.5, 4.0  # of the host: an event, a query, a CPU clock with caches cold
TENSOR_MODULE = "torch._dynamo.variables.tensor"  # observed steps wait until dynamo is loaded
LOADER, EVALUATED = 0, 1  # numbers of the loaders for training and evaluation
FIRST_PID = 5000
RESERVED_BYTES = 16_000_000_000  # by torch's allocator


@contextlib.contextmanager
def simulated_clock(world: World) -> Iterator[None]:
    """The recorder's modules read the clock of the host that runs."""
    before = [module.perf_counter_ns for module in CLOCKED]
    loaded = sys.modules.get(TENSOR_MODULE)
    for module in CLOCKED:
        module.perf_counter_ns = world.now_ns
    sys.modules[TENSOR_MODULE] = loaded or types.ModuleType(TENSOR_MODULE)
    try:
        yield
    finally:
        for module, clock in zip(CLOCKED, before, strict=True):
            module.perf_counter_ns = clock
        if loaded is None:
            del sys.modules[TENSOR_MODULE]


class Recording(recorder.Recorder):
    """The recorder on a simulated clock. Facts about a model's layers, loaders and precision come from the story."""

    def __init__(self, torch: Any, folder: Path, own: SimulatedRank, clock: Callable[[], int]) -> None:
        self._rank, self._clock, self._path = own, clock, folder / f"rank-{own.rank}.ring"
        self.swallowed: BaseException | None = None
        super().__init__(torch, str(folder))
        self.facts.write = _ignore  # type: ignore[method-assign]
        self.loading.picture_steps.clear()
        self.loading.digests.open = False
        self.passes._describe_optimizer = _ignore  # type: ignore[method-assign]
        nothing = SimpleNamespace(watch=_ignore, release=_ignore)
        self.loading.drawing = nothing
        self.work = SimpleNamespace(sampled=lambda *_, **__: False)
        self.loading.batch_samples = SimpleNamespace(batch=_ignore)
        self.precision = SimpleNamespace(begin=_ignore, disarm=_ignore, refresh=_ignore, until=device_syncs.NEVER)

    def make_account(self) -> Any:
        account, host = super().make_account(), self._rank.host

        def cpu_clock() -> int:
            host.work(CLOCK_US * US)
            return host.cpu_ns

        account.clock, account.cpu_clock, account.system_clock = self._clock, cpu_clock, lambda: 0
        account.since, account.cpu_since, account.system_since = host.now_ns, host.cpu_ns, 0
        account._reset(host.now_ns)
        account.graph_nodes = None
        account.untrained.evaluates = lambda: False
        self.loading.in_process = None
        return account

    def become_rank(self, account: Any, roots: Any) -> None:
        world = self._rank.job.ranks
        at = self._rank.rank
        ring = Ring(
            str(self._path), slots=layout.RANK_SLOTS, role=layout.ROLE_RANK, rank=at, local_rank=at, world_size=world
        )
        account.become_rank(ring, lambda: 0)
        self.gpu = GpuTimes(self.torch.cuda, at, self.captures, clock=self._clock)
        self.facts.values["cuda"] = {"device": at}

    def failed(self) -> None:
        self.swallowed = self.swallowed or sys.exc_info()[1]

    def leaves(self) -> None:
        """The process ends. Raises what the recorder's wrappers have swallowed."""
        if self.swallowed is not None:
            raise self.swallowed
        account = self.own_account()
        assert account is not None
        summed_facts.sum_up(self)
        account.leave()


def _ignore(*_: Any, **__: Any) -> None:
    return None


# -- the classes and functions of torch ------------------------------------------------------------------------------------------


def tensor_class(own: SimulatedRank) -> Any:
    """A class of tensors of this rank, since the recorder replaces methods of it for single steps."""

    class Tensor:
        def __init__(self, device: str, rows: int, numbers: int, *, pinned: bool = True) -> None:
            self.device = SimpleNamespace(type=device, index=own.rank if device == "cuda" else None)
            self.is_cuda = device == "cuda"
            self.shape = (rows, numbers)
            self._pinned = pinned

        def size(self, at: int) -> int:
            return self.shape[at]

        def numel(self) -> int:
            return self.shape[0] * self.shape[1]

        def element_size(self) -> int:
            return 4

        def dim(self) -> int:
            return 2

        def is_pinned(self) -> bool:
            return self._pinned

        def item(self) -> float:
            own.read()
            return 1.0

        def to(self, device: str, *, non_blocking: bool = False) -> Any:
            own.copy(4e-6 * self.numel(), pinned=self._pinned, non_blocking=non_blocking)
            return Tensor(device, *self.shape)

    return Tensor


def _event_class(own: SimulatedRank) -> Any:
    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            self.work: Any = None

        def record(self, stream: Any) -> None:
            own.host.work(RECORD_US * US)
            self.work = own.host.mark()

        def query(self) -> bool:
            own.host.work(QUERY_US * US)
            return own.host.has_passed(self.work)

        def wait(self, stream: Any = None) -> None:
            own.join(self.work)

        def elapsed_time(self, later: Any) -> float:
            own.host.work(QUERY_US * US)
            return (later.work.end_ns - self.work.end_ns) / MS

    return Event


def _graph_class(own: SimulatedRank) -> Any:
    class CUDAGraph:
        def capture_begin(self) -> None:
            own.capturing = True

        def capture_end(self) -> None:
            own.capturing = False

        def replay(self) -> None:
            own.replay(own.job.forward, own.job.backward, own.job.optimizer)

    return CUDAGraph


def torch_of(own: SimulatedRank) -> Any:
    """The module as far as the recorder uses it."""
    tensor = tensor_class(own)
    memory = {
        "allocated_bytes.all.current": 9_000_000_000,
        "reserved_bytes.all.current": RESERVED_BYTES,
        "allocated_bytes.all.peak": 14_000_000_000,
        "num_alloc_retries": 0,
    }
    cuda = SimpleNamespace(
        Event=_event_class(own),
        Stream=type("Stream", (), {}),
        CUDAGraph=_graph_class(own),
        current_stream=lambda device=0: own.stream,
        default_stream=lambda device=0: "compute",
        is_current_stream_capturing=lambda: own.capturing,
        is_initialized=lambda: True,
        memory_stats=lambda device: memory,
    )
    autograd = SimpleNamespace(backward=lambda tensors: own.backward(), _profiler_enabled=lambda: False)
    compiler = SimpleNamespace(is_dynamo_compiling=lambda: False)
    return SimpleNamespace(
        cuda=cuda,
        Tensor=tensor,
        autograd=autograd,
        compiler=compiler,
        channels_last="channels_last",
        is_grad_enabled=lambda: own.graded,
        is_anomaly_enabled=lambda: False,
        _C=SimpleNamespace(DisableTorchFunction=contextlib.nullcontext),
    )


def batches_class(own: SimulatedRank, made: Callable[[int, dict[str, int]], None]) -> Any:
    """A loader's iterator, fed by workers. `made` gets each batch's worker and record."""
    job, host, chance = own.job, own.host, own.chance
    loader: Loader = job.loader
    ready: list[int] = []
    asked: list[int] = []
    tensor = None

    def make(number: int) -> int:
        """Plays the worker that makes this batch. It has at most two waiting, and takes them up in turn."""
        worker, before = number % loader.workers, number - loader.workers
        free_ns = ready[before] if before >= 0 else asked[0]
        wanted_ns = asked[max(0, number - 2 * loader.workers)]
        began_ns = max(free_ns, wanted_ns)
        stretched = loader.slow.get(own.rank, 1.0) * (1.0 + chance.uniform(-loader.spread, loader.spread))
        took_ns = round(loader.batch_ms * MS * stretched)
        computed_ns = round(took_ns * (1.0 - loader.storage_share))
        row = {"worker": worker, "loader": LOADER, "t_start_ns": began_ns, "t_end_ns": began_ns + took_ns}
        row |= {"cpu_ns": round(0.97 * computed_ns), "samples": job.batch, "evaluation": -1}
        row |= {"wait_ns": began_ns - free_ns, "number": number // loader.workers, "sending_ns": -1}
        row |= {"blocks": 0 if computed_ns == took_ns else round(job.batch_mb * 1e6 / 512)}
        made(worker, row)
        return began_ns + took_ns

    class Batches:
        _rn50_loader = LOADER
        _dataset_fetcher = None

        def __init__(self, tensors: Any) -> None:
            nonlocal tensor
            tensor, self._num_yielded = tensors, 0

        def __next__(self) -> Any:
            return self._fetch()

        def _fetch(self) -> Any:
            asked.append(host.now_ns)
            number = self._num_yielded
            ready.append(make(number))
            host.sleep_until(ready[number])
            return self._fetched()

        def _fetched(self) -> Any:
            host.work(loader.fetch_ms * MS)
            self._num_yielded += 1
            numbers = round(job.batch_mb * 1e6 / 4 / job.batch)
            return [tensor("cpu", job.batch, numbers, pinned=job.pinned)]

    return Batches


def evaluated_class(batches: Any, count: int) -> Any:
    """The iterator of an evaluation: so many batches, which its own workers have ready."""

    class Evaluated(batches):  # type: ignore[misc]
        _rn50_loader = EVALUATED

        def __iter__(self) -> Any:
            return self

        def _fetch(self) -> Any:
            if self._num_yielded == count:
                raise StopIteration
            return self._fetched()

    return Evaluated


def _saver(own: SimulatedRank) -> Any:
    def save(state: Any, file: str) -> None:
        own.save()

    return save


def _optimizer_module(own: SimulatedRank) -> Any:
    """torch.optim.optimizer with its global hooks."""
    before: list[Any] = []
    after: list[Any] = []

    class Optimizer:
        def __init__(self) -> None:
            self.param_groups: list[Any] = []

        def step(self, share: float = 1.0) -> None:
            hooked = not own.job.compiled_update
            for hook in before if hooked else ():
                hook(self, (), {})
            own.compute(own.job.optimizer, share, sized=False)
            if own.job.exchange.parameters_ms and own.job.ranks > 1:
                own.send_parameters()
            for hook in after if hooked else ():
                hook(self, (), {})

    return SimpleNamespace(
        Optimizer=Optimizer,
        register_optimizer_step_pre_hook=before.append,
        register_optimizer_step_post_hook=after.append,
    )


class ReplicatedModel:
    """DistributedDataParallel as its logger shows it."""

    def __init__(self, own: SimulatedRank) -> None:
        self._own = own
        self.logger = SimpleNamespace(_get_ddp_logging_data=lambda: SimpleNamespace(ints_map=own.stamps))

    def parameters(self) -> list[Any]:
        return [SimpleNamespace(numel=lambda: 25_557_032, device=SimpleNamespace(type="cuda"))]

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        exchange = self._own.job.exchange
        return {
            "world_size": self._own.job.ranks,
            "backend_name": "nccl",
            "module_name": "Net",
            "bucket_cap_bytes": 26_214_400,
            "find_unused_parameters": 0,
            "has_sync_bn": int(exchange.norm_layers > 0),
            "total_parameter_size_bytes": 102_228_128,
            "bucket_sizes": ", ".join(["20445625"] * exchange.buckets),
        }


class Torch:
    """One rank's torch under the recorder's patches."""

    def __init__(self, own: SimulatedRank, folder: Path, world: World, made: Callable[..., None]) -> None:
        self.own = own
        self.module = torch_of(own)
        self.recorder = Recording(self.module, folder, own, world.now_ns)
        batches = batches_class(own, made)
        mark_wrappers.mark_fetches(self.module, self.recorder, batches)
        mark_wrappers.mark_backward(self.module, self.recorder)
        torch_patches._graphs(self.module, self.recorder)
        optimizers = _optimizer_module(own)
        with _imported("torch.optim", optimizer=optimizers):
            mark_wrappers.mark_updates(self.module, self.recorder)
        self.batches = batches(self.module.Tensor)
        self._evaluated = evaluated_class(batches, own.job.pauses.evaluated)
        self.save = torch_patches._saving(self.recorder, _saver(own))
        self.optimizer = optimizers.Optimizer()
        self.parameter_optimizers = [optimizers.Optimizer() for _ in range(10)]
        self.model = ReplicatedModel(own)
        own.collective = self._collectives()
        if own.job.update_in_backward:
            own.gradient_ready = self._update_one

    def evaluated(self) -> Any:
        return self._evaluated(self.module.Tensor)

    def _update_one(self, part: int) -> None:
        """Runs an optimizer from a gradient's hook, in autograd's thread, while this one waits."""
        done = _thread.allocate_lock()
        done.acquire()

        def hook() -> None:
            try:
                self.parameter_optimizers[part].step(0.1)
            finally:
                done.release()

        _thread.start_new_thread(hook, ())
        done.acquire()

    def _collectives(self) -> Callable[[str, Callable[[], Work]], Work]:
        """A function that issues a collective through the recorder's wrapper, from a frame of the library that calls it."""
        group = type("ProcessGroup", (), {"group_name": "0", "size": lambda _: self.own.job.ranks})
        world = group()
        module = SimpleNamespace(
            ProcessGroup=group, GroupMember=SimpleNamespace(WORLD=world), get_backend=lambda _: "nccl"
        )
        collectives = self.recorder.collectives = collective_marks.Collectives(self.recorder, module)
        collectives.joins(1)
        kinds = {"norm": "all_gather", "gather": "all_gather", "scatter": "reduce_scatter", "reduce": "all_reduce"}
        kinds |= {"expert": "all_to_all", "parameters": "broadcast"}
        callers = {}
        for kind, name in kinds.items():
            code = layout.COLLECTIVE_KINDS.index(name)
            wrapped = collective_patches.wrap(self.recorder, collectives, _issue, code)
            callers[kind] = from_file(_called, LIBRARIES[kind])(wrapped)
        sizes = {"norm": 512, "gather": 2_500_000, "scatter": 2_500_000, "reduce": 5_000_000}
        sizes |= {"expert": 4_000_000, "parameters": 3_200_000}
        sent = {kind: self.module.Tensor("cuda", 1, size) for kind, size in sizes.items()}
        event = self.module.cuda.Event
        event.wait = collective_patches.wrap_event(self.recorder, collectives, event.wait)
        self.own.stream_waits = self._wait_for

        def call(kind: str, issue: Callable[[], Work]) -> Work:
            self.own.stream = "exchange" if kind in ("gather", "scatter", "reduce") else "compute"
            try:
                work: Work = callers[kind](sent[kind], issue)
            finally:
                self.own.stream = "compute"
            return work

        return call

    def _wait_for(self, *works: Work) -> None:
        """Lets the compute stream wait for collectives on another one, as libraries do in Python."""
        for work in works:
            event = self.module.cuda.Event()
            event.work = work
            event.wait("compute")


LIBRARIES = {
    "norm": "/opt/python/site-packages/torch/nn/modules/_functions.py",
    "gather": "/opt/python/site-packages/torch/distributed/fsdp/_flat_param.py",
    "scatter": "/opt/python/site-packages/torch/distributed/fsdp/_flat_param.py",
    "reduce": "/opt/python/site-packages/deepspeed/runtime/zero/stage_1_and_2.py",
    "expert": "/opt/python/site-packages/megatron/core/tensor_parallel/mappings.py",
    "parameters": "/opt/python/site-packages/torch/distributed/optim/zero_redundancy_optimizer.py",
}


def _issue(tensor: Any, issue: Callable[[], Work]) -> Work:
    return issue()


def _called(wrapped: Callable[..., Work]) -> Callable[..., Work]:
    def issue(tensor: Any, what: Callable[[], Work]) -> Work:
        return wrapped(tensor, what)

    return issue


def from_file(function: Any, file: str) -> Any:
    """The same function, and those in it, as code of another file."""
    return types.FunctionType(_moved(function.__code__, file), function.__globals__)


def _moved(code: types.CodeType, file: str) -> types.CodeType:
    inner = tuple(_moved(each, file) if isinstance(each, types.CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=file, co_consts=inner)


@contextlib.contextmanager
def _imported(name: str, **attributes: Any) -> Iterator[None]:
    """A module of this name that has only these attributes."""
    before = sys.modules.get(name)
    stand_in = types.ModuleType(name)
    vars(stand_in).update(attributes)
    sys.modules[name] = stand_in
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before
