"""A process of its own that runs one shape of training loop through the recorder's wrappers, around a torch that computes nothing.

    python tests/harm/shapes.py SHAPE STEPS FOLDER

Prints what the recorder has cost it: how far its memory grew after a tenth of the steps, what it holds at the end, what it leaves to do.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from rn50_advisor.probes.rank.layout import RANK_SLOTS, ROLE_RANK
from rn50_advisor.probes.rank.patches import loader_patches, mark_wrappers, torch_patches
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.ring import Ring
from rn50_advisor.probes.rank.thread_clocks import RunDelay

NEVER = 1 << 62
BATCH: list[list[int]] = [[1]]


class Loader:
    batch_size, num_workers, dataset = 1, 0, BATCH

    def __init__(self, batches: int = NEVER) -> None:
        self.batches = batches

    def __iter__(self) -> Any:
        return sys.modules["torch.utils.data"].dataloader._SingleProcessDataLoaderIter(self)


class Batches:
    """As torch's are made; `__next__` is what is wrapped."""

    _num_yielded = 0

    def __init__(self, loader: Loader) -> None:
        self.left = loader.batches

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> list[list[int]]:
        if not self.left:
            raise StopIteration
        self.left -= 1
        self._num_yielded += 1
        return BATCH

    def _reset(self, loader: object) -> None: ...

    def _shutdown_workers(self) -> None: ...


class Graph:
    def capture_begin(self) -> None: ...

    def capture_end(self) -> None: ...

    def replay(self) -> None: ...


class Optimizer:
    def __init__(self) -> None:
        self.param_groups: list[Any] = []


class Job:
    """A torch of stubs, with the recorder around it, and the deeds of a loop."""

    def __init__(self, folder: str) -> None:
        self.gradients = True
        torch: Any = ModuleType("torch")
        torch.is_grad_enabled = lambda: self.gradients
        torch.Tensor = type("Tensor", (), {})
        torch.compiler = SimpleNamespace(is_dynamo_compiling=lambda: False)
        torch.cuda = SimpleNamespace(is_initialized=lambda: False, CUDAGraph=Graph)
        torch._C = SimpleNamespace(DisableTorchFunction=contextlib.nullcontext, _len_torch_dispatch_stack=lambda: 0)
        torch.is_anomaly_enabled = lambda: False
        torch.autograd = SimpleNamespace(backward=lambda inside=None: inside() if inside else None)
        torch.autograd._profiler_enabled = lambda: False
        torch.set_num_threads = torch.get_num_threads = lambda *_: 1
        hooks: list[Any] = []
        optimizers = SimpleNamespace(
            register_optimizer_step_pre_hook=hooks.append,
            register_optimizer_step_post_hook=hooks.append,
            Optimizer=type("Optimizer", (), {"__init__": lambda optimizer: None}),
        )
        data: Any = ModuleType("torch.utils.data")
        base = type("_BaseDataLoaderIter", (Batches,), {"__next__": Batches.__next__})
        kinds = {f"_{kind}DataLoaderIter": type(kind, (base,), {}) for kind in ("SingleProcess", "MultiProcessing")}
        data.IterableDataset = type("IterableDataset", (), {})
        data.dataloader = SimpleNamespace(_BaseDataLoaderIter=base, DataLoader=Loader, **kinds)
        for kind in kinds.values():  # each its own, as torch has it
            kind.__init__ = Batches.__init__  # type: ignore[misc]
            kind._reset, kind._shutdown_workers = Batches._reset, Batches._shutdown_workers  # type: ignore[attr-defined]
        torch.utils, torch.optim = SimpleNamespace(data=data), SimpleNamespace(optimizer=optimizers)
        names = {"torch": torch, "torch.utils": torch.utils, "torch.utils.data": data, "torch.optim": torch.optim}
        sys.modules.update(names)  # type: ignore[arg-type]
        self.recorder = recorder = Recorder(torch, folder)
        recorder.precision = SimpleNamespace(  # type: ignore[assignment]
            begin=lambda: None, refresh=lambda _: None, disarm=lambda: None, until=NEVER, trained=lambda: None
        )
        recorder.passes._describe_optimizer = lambda _: None  # type: ignore[method-assign,assignment]
        for patch in (
            loader_patches.patch_loaders,
            mark_wrappers.mark_backward,
            mark_wrappers.mark_updates,
            torch_patches._collector,
            torch_patches._graphs,
        ):
            patch(torch, recorder)
        account: Any = recorder.own_account()
        self.ring = Ring(folder + "/ring", slots=RANK_SLOTS, role=ROLE_RANK)
        account.become_rank(self.ring, RunDelay())
        self.begin, self.end = hooks
        self.backward = torch.autograd.backward
        self.sgd, self.other = SimpleNamespace(param_groups=[]), SimpleNamespace(param_groups=[])

    def update(self, optimizer: Any = None, inside: Callable[[], Any] | None = None) -> None:
        optimizer = optimizer or self.sgd
        self.begin(optimizer, (), {})
        if inside is not None:
            inside()
        self.end(optimizer, (), {})

    def warmed_up(self, steps: int = 3000) -> Any:
        """A plain loop, left in the middle of its loader."""
        batches = iter(Loader())
        for _ in range(steps):
            next(batches)
            self.backward()
            self.update()
        return batches


def plain(job: Job, steps: int) -> Iterator[None]:
    batches = iter(Loader())
    for _ in range(steps):
        next(batches)
        job.backward()
        yield job.update()


def left_early(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        job.backward()
        yield job.update()


def backward_alone(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.backward()


def updates_alone(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.update()


def updates_that_raise(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.begin(job.sgd, (), {})


def fetches_alone(job: Job, steps: int) -> Iterator[None]:
    batches = job.warmed_up()
    for _ in range(steps):
        yield next(batches)  # type: ignore[misc]


def evaluation(job: Job, steps: int) -> Iterator[None]:
    batches = job.warmed_up()
    job.gradients = False
    for _ in range(steps):
        yield next(batches)  # type: ignore[misc]


def gan(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        job.backward()
        job.update()
        job.backward()
        yield job.update(job.other)


def closures(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.update(inside=lambda: [job.backward() for _ in range(4)])


def accumulation(job: Job, steps: int) -> Iterator[None]:
    batches = job.warmed_up()
    for step in range(steps):
        next(batches)
        yield job.backward()
        if step % 20_000 == 0:
            job.update()


def inside_backward(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.backward(lambda: [job.update(job.other) for _ in range(4)])


def backward_inside_backward(job: Job, steps: int) -> Iterator[None]:
    job.warmed_up()
    for _ in range(steps):
        yield job.backward(lambda: job.backward(job.backward))


def new_loaders(job: Job, steps: int) -> Iterator[None]:
    """One costs as much as ten steps."""
    job.warmed_up()
    for _ in range(steps // 10):
        for _ in iter(Loader(2)):
            job.backward()
            yield job.update()


def new_optimizers(job: Job, steps: int) -> Iterator[None]:
    batches = job.warmed_up()
    kept = [SimpleNamespace(param_groups=[]) for _ in range(1000)]
    for step in range(steps):
        next(batches)
        job.backward()
        yield job.update(kept[step % len(kept)])


def another_thread(job: Job, steps: int) -> Iterator[None]:
    """The thread that trained waits while another one trains."""
    job.warmed_up()
    for _ in range(steps // 1000):
        thread = threading.Thread(target=lambda: [(job.backward(), job.update()) for _ in range(1000)])
        thread.start()
        thread.join()
        yield


def fetching_threads(job: Job, steps: int) -> Iterator[None]:
    batches = job.warmed_up()
    for _ in range(steps // 1000):
        thread = threading.Thread(target=lambda: [next(batches) for _ in range(1000)])
        thread.start()
        thread.join()
        yield


def graph_replays(job: Job, steps: int) -> Iterator[None]:
    """A CUDA graph with a whole step, replayed; each thousand steps it is captured again."""
    sgd = Optimizer()
    for step in range(steps):
        if step % 1000 == 0:
            graph = Graph()
            graph.capture_begin()
            job.backward()
            job.update(sgd)
            graph.capture_end()
        yield graph.replay()


def collections(job: Job, steps: int) -> Iterator[None]:
    """One phase, amid which garbage is collected for ever."""
    job.warmed_up()
    for _ in range(steps // 10):
        yield gc.collect(0)  # type: ignore[misc]


SHAPES = (
    plain, left_early, backward_alone, updates_alone, updates_that_raise, fetches_alone, evaluation, gan, closures, accumulation,
    inside_backward, backward_inside_backward, new_loaders, new_optimizers, another_thread, fetching_threads, graph_replays,
    collections,
)  # fmt: skip

# Of these shapes, steps in each turn.
TIMES = {"new_loaders": 5, "another_thread": 1000, "fetching_threads": 1000, "collections": 10}


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def held(recorder: Recorder) -> int:
    """Objects that the recorder keeps, itself and its parts: not code, modules, classes and what these keep."""
    seen: dict[int, Any] = {}
    waiting: list[Any] = [vars(recorder)]
    while waiting:
        found = waiting.pop()
        if id(found) not in seen and not isinstance(found, (type, ModuleType, SimpleNamespace, type(held))):
            seen[id(found)] = found
            waiting += gc.get_referents(found)
    return len(seen)


def run(shape: Callable[[Job, int], Iterator[None]], steps: int, folder: str) -> dict[str, Any]:
    job = Job(folder)
    recorder, buffer = job.recorder, job.recorder.buffer
    longest, early = 0, 0.0
    for number, _ in enumerate(shape(job, steps)):
        if number == steps // TIMES.get(shape.__name__, 1) // 10:
            early = resident_mb()
        if number % 997 == 0 or number < 100:
            longest = max(longest, *map(len, buffer.marks), len(buffer.sizes), len(buffer.others))
    assert early, "too few turns"
    grown = resident_mb() - early
    kept, before = held(recorder), job.ring._next
    recorder.leave()
    return {
        "grown_mb": round(grown, 1),
        "longest": longest,
        "held": kept,
        "written_at_end": job.ring._next - before,
        "steps": recorder.account.step,
        "errors": recorder.errors,
    }


if __name__ == "__main__":
    name, count, where = sys.argv[1:]
    chosen = next(shape for shape in SHAPES if shape.__name__ == name)
    print(json.dumps(run(chosen, int(count), where)))
