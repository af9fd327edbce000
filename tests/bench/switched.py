"""Cost of the recorder, switched on and off between blocks of steps of one process: resolves microseconds in a step of a millisecond.

    rn50-advisor run -- python tests/bench/switched.py --size 1ms [--events thinned|each] --took FILE

Steps of two processes differ by several percent because of their heaps alone, so pairs of processes cannot show this. Both halves include
what the switch cannot remove: the agent beside the job, and the stamps that DistributedDataParallel takes by itself.

`--events`: takes events at the marks, as on a GPU, on a double of `torch.cuda`: thinned as the recorder does it, or in each step. This
includes all that Python does for them, but not what CUDA needs to record one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from sampling import level, standard_error
from sizes import SIZES
from steps import Training, prepare, write_took
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import _utils, dataloader

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "jobs"))
from cuda_double import Cuda, find_recorder, gpu_times_of

RECORDER = "_rn50_advisor_rank"  # the package's name inside a job
# Short, because the machine's speed drifts, but whole periods of the recorder: it reads CPU clocks once in 512 steps or in 0.5 s.
BLOCK_STEPS = {"1ms": 512, "5ms": 128, "50ms": 12, "250ms": 4}
# After a switch, the caches are cold and the recorder does not yet know the step's length.
SETTLING_STEPS = {"1ms": 12, "5ms": 5, "50ms": 3, "250ms": 3}
WARM_UP_STEPS = 50
CHECK_STEPS = 2


class Switch:
    """Switches all parts of the recorder that a plain step runs through."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        owners = (
            (dataloader._BaseDataLoaderIter, "__next__"),
            (_utils.fetch._MapDatasetFetcher, "fetch"),
            (torch.autograd, "backward"),
        )
        found = [(owner, name, getattr(owner, name)) for owner, name in owners]
        self._wrappers = [entry for entry in found if self._is_recorder(entry[2].__code__)]
        self._hooks = [
            (hooks, {key: hook for key, hook in hooks.items() if self._is_recorder(hook.__code__)})
            for hooks in (optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks)
        ]
        # a partial of a C function: only its argument is the recorder's object
        self._callbacks = [call for call in gc.callbacks if _asks(call).endswith(".garbage")]

    def turn(self, on: bool) -> None:
        for owner, name, wrapper in self._wrappers:
            setattr(owner, name, wrapper if on else wrapper.__wrapped__)
        for hooks, ours in self._hooks:
            for key, hook in ours.items():
                hooks.pop(key, None)
                if on:
                    hooks[key] = hook
        for call in self._callbacks:
            if call in gc.callbacks:
                gc.callbacks.remove(call)
            if on:
                gc.callbacks.append(call)

    def check(self, step: Callable[[], None]) -> None:
        """Raises SystemExit if a step meets the recorder while it is off, or does not while it is on."""
        for on in (True, False):
            self.turn(on)
            met: set[str] = set()

            def look(frame: FrameType, event: str, argument: Any, met: set[str] = met) -> None:
                if self._is_recorder(frame.f_code):
                    met.add(frame.f_code.co_name)

            sys.setprofile(look)
            try:
                step()
            finally:
                sys.setprofile(None)
            if bool(met) is not on:
                raise SystemExit(f"switched {'on' if on else 'off'}, but a step meets {sorted(met) or 'no recorder'}")

    def _is_recorder(self, code: CodeType | None) -> bool:
        return code is not None and code.co_filename.startswith(self._folder)


def _asks(callback: Any) -> str:
    """Module of a garbage collection callback's argument; empty if the callback is no partial."""
    return type(callback.args[0]).__module__ if isinstance(callback, functools.partial) and callback.args else ""


def take_events(recorder: Any, *, each: bool) -> None:
    """Makes the recorder treat this job as one on a GPU, from its next step on."""
    times = gpu_times_of(recorder)

    class EachStep(times):  # type: ignore[misc, valid-type]
        def turn(self, step: int, now: int, self_ns: int) -> bool:
            return True

    recorder.gpu = (EachStep if each else times)(Cuda, 0)


def warm_up(step: Callable[[], None], events: str | None) -> Any:
    """Runs warm-up steps. `events`: thinned, each, or None. Returns the recorder if it takes events, else None."""
    recorder = find_recorder() if events else None
    for number in range(WARM_UP_STEPS):
        step()
        if recorder is not None and number == 0:  # the first backward has made this process a rank
            take_events(recorder, each=events == "each")
    return recorder


def check_events(recorder: Any) -> None:
    """Raises SystemExit if the recorder should take events and took none, or stopped taking them before the end."""
    if recorder is not None and (recorder.gpu is None or not Cuda.Event.made):
        raise SystemExit("no event was taken, or not to the end")


def stepper(training: Training) -> Callable[[], None]:
    model, optimizer = training.model, training.optimizer
    batches: Iterator[Any] = iter(training.data)

    def step() -> None:
        x, y = next(batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


@dataclass(frozen=True, slots=True)
class Block:
    """Microseconds per step. The median has less noise; the mean includes what the recorder does in one step of twenty."""

    mean_us: float
    median_us: float


def run_block(step: Callable[[], None], settling: int, steps: int) -> Block:
    for _ in range(settling):
        step()
    took = []
    for _ in range(steps):
        began = time.perf_counter_ns()
        step()
        took.append(time.perf_counter_ns() - began)
    return Block(level(took) / 1e3, statistics.median(took) / 1e3)


def compare(
    switch: Switch, step: Callable[[], None], pairs: int, settling: int, steps: int
) -> tuple[list[Block], list[Block]]:
    """Returns blocks with the recorder off and on, run in pairs whose order alternates."""
    seen: dict[bool, list[Block]] = {False: [], True: []}
    for pair in range(pairs):
        for on in (False, True) if pair % 2 else (True, False):
            switch.turn(on)
            seen[on].append(run_block(step, settling, steps))
    switch.turn(True)
    return seen[False], seen[True]


def cost(off: Sequence[Block], on: Sequence[Block]) -> dict[str, float]:
    """Returns medians of the differences between paired blocks, with their standard errors."""
    mean = [b.mean_us - a.mean_us for a, b in zip(off, on, strict=True)]
    median = [b.median_us - a.median_us for a, b in zip(off, on, strict=True)]
    return {
        "off_us": statistics.median(block.mean_us for block in off),
        "more_us": statistics.median(mean),
        "error_us": standard_error(mean),
        "median_step_more_us": statistics.median(median),
        "median_step_error_us": standard_error(median),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="1ms")
    parser.add_argument("--pairs", type=int, default=40, help="blocks with and blocks without the recorder")
    parser.add_argument(
        "--block", type=int, metavar="STEPS", help="of each; shorter ones see less of the machine's drift"
    )
    parser.add_argument("--events", choices=("thinned", "each"))
    parser.add_argument("--took", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    if RECORDER not in sys.modules:
        raise SystemExit("no recorder in this process: rn50-advisor run -- python tests/bench/switched.py ...")
    settling, steps = SETTLING_STEPS[asked.size], asked.block or BLOCK_STEPS[asked.size]
    training = prepare(asked.size, WARM_UP_STEPS + CHECK_STEPS + 2 * asked.pairs * (settling + steps))
    step = stepper(training)
    recorder = warm_up(step, asked.events)
    switch = Switch(Path(sys.modules[RECORDER].__path__[0]))
    switch.check(step)
    blocks = cost(*compare(switch, step, asked.pairs, settling, steps))
    check_events(recorder)
    write_took(asked.took, {**blocks, "pairs": asked.pairs, "block_steps": steps})


if __name__ == "__main__":
    main()
