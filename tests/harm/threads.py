"""Small jobs that train in threads, with the recorder in their process.

python tests/harm/threads.py JOB FOLDER [THREADS]
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from rn50_advisor.probes.rank import install
from rn50_advisor.probes.rank.layout import FLAG_NO_OPTIMIZER, KIND_STEP
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.ring import Ring
from rn50_advisor.probes.rank.steps.optimizer_turns import FIRST_IS_GONE_AFTER

FORKS = 4
STEPS = 60


class Nowhere:
    """In place of the finders that wait for a module."""

    def __init__(self, *_: Any) -> None: ...

    def find_spec(self, *_: Any) -> None:
        return None


flags_written: list[int] = []


class Noting(Ring):
    def write(self, kind: int, flags: int, values: Any) -> None:
        if kind == KIND_STEP:
            flags_written.append(flags)
        super().write(kind, flags, values)


def arm(folder: str) -> Recorder:
    sys.modules[Recorder.__module__].Ring = Noting  # type: ignore[attr-defined]
    install.install(folder, Nowhere)
    return next(item for item in gc.get_objects() if type(item) is Recorder)


def loop(model: Any, steps: int = STEPS, *, updates: bool = True) -> None:
    """Gradients stay where they are: torch itself dies where one thread takes a gradient away that another one adds to."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batch = torch.randn(8, 4)
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)
        model(batch).sum().backward()
        if updates:
            optimizer.step()


def in_threads(count: int, *arguments: Any, at_once: bool = True) -> None:
    barrier = threading.Barrier(count if at_once else 1)

    def run() -> None:
        barrier.wait()
        loop(*arguments)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
        if not at_once:
            thread.join()
    for thread in threads:
        thread.join()


def together(count: int) -> dict[str, Any]:
    """Processes whose threads begin their first backward together, with threads that switch whenever they can."""
    ends: Counter[int] = Counter()
    for _ in range(FORKS):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            sys.setswitchinterval(1e-5)
            in_threads(count, torch.nn.Linear(4, 1), 5)
            os._exit(0)
        ends[os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])] += 1
    return {"ends": ends, "jobs": FORKS}


def hogwild() -> int:
    """Threads that share a model, each with an optimizer of its own."""
    in_threads(4, torch.nn.Linear(4, 1))
    return 1


def after_each_other() -> int:
    """A thread for each part of the training, as trainers and notebooks start them."""
    in_threads(3, torch.nn.Linear(4, 1), at_once=False)
    return 3 * STEPS - 2 * FIRST_IS_GONE_AFTER - 10  # each has an optimizer of its own


class Device(torch.autograd.Function):
    """Its backward is done in another thread, as autograd does on CUDA."""

    @staticmethod
    def forward(ctx: Any, given: Any, call: Any) -> Any:
        ctx.call = call
        return given.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        thread = threading.Thread(target=ctx.call)
        thread.start()
        thread.join()
        return gradient, None


def hooks_in_threads() -> int:
    model = torch.nn.Linear(4, 1)
    first, second = (torch.optim.SGD([parameter], lr=0.01) for parameter in model.parameters())
    batch = torch.randn(8, 4)

    def update() -> None:
        first.step()
        second.step()

    for _ in range(STEPS):
        Device.apply(model(batch).sum(), update).backward()
    return STEPS - 6


def checkpointed() -> int:
    """A reentrant checkpoint runs another backward inside the one that runs."""
    from torch.utils.checkpoint import checkpoint

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(STEPS):
        batch = torch.randn(8, 4, requires_grad=True)
        checkpoint(model, batch, use_reentrant=True).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return STEPS - 6


def main() -> None:
    name, folder, *more = sys.argv[1:]
    torch.set_num_threads(1)
    recorder = arm(folder)
    if name == "together":
        print(json.dumps(together(int(more[0]))))
        return
    expected = globals()[name]()
    recorder.leave()
    rings = len(list(Path(folder).glob("rank-*.ring*")))
    print(
        json.dumps(
            {
                "expected": expected,
                "steps": recorder.account.step,
                "errors": recorder.errors,
                "several_threads_train": recorder.several_threads_train,
                "no_optimizer": sum(bool(flags & FLAG_NO_OPTIMIZER) for flags in flags_written),
                "rings": rings,
            }
        )
    )


if __name__ == "__main__":
    main()
