"""Cost of the recorder in the training thread, mark by mark, measured in place within a step.

    rn50-advisor run -- python tests/bench/marks.py --size 5ms [--events thinned|each] [--every N] --took FILE

Whole steps vary by far more than this cost (`switched.py`). Only microseconds pass between the job's call into torch and the start of
torch's own code, and on the way back. Clocks at both ends time these parts, in blocks of steps with and without the recorder. They cover
all that the recorder does in this thread: marks, their reading, CPU clocks, events, facts. They do not cover what it displaces from the
caches.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from sampling import standard_error
from sizes import SHORTEST, SIZES
from steps import prepare, write_took
from switched import RECORDER, check_events, find_recorder, stepper, warm_up
from torch.optim import optimizer as optimizers
from torch.utils.data import dataloader

MARKS = ("fetch", "batch", "backward", "backward's end", "optimizer", "optimizer's end")
BLOCK_STEPS = {SHORTEST: 2048, "1ms": 2048, "5ms": 512, "50ms": 64, "250ms": 16}
SETTLING_S = 0.3  # the recorder's buffer still holds marks from around the switch, which are not those of a plain loop
ENDLESS = 1_000_000  # steps
_FETCH, _BATCH, _BACKWARD, _BACKWARD_END, _OPTIMIZER, _OPTIMIZER_END = range(len(MARKS))


class Places:
    """Clocks around each mark: `began` before the recorder's work there, `ended` after it."""

    def __init__(self) -> None:
        self.began, self.ended = [0] * len(MARKS), [0] * len(MARKS)
        self._next, self._backward = dataloader._BaseDataLoaderIter.__next__, torch.autograd.backward
        self._plain_next = self._inside(self._next, "original_next", _FETCH, _BATCH)
        self._plain_backward = self._inside(self._backward, "original", _BACKWARD, _BACKWARD_END)
        self._hooks = [
            (hooks, list(hooks.values()), self._clock(self.began, mark), self._clock(self.ended, mark))
            for hooks, mark in (
                (optimizers._global_optimizer_pre_hooks, _OPTIMIZER),
                (optimizers._global_optimizer_post_hooks, _OPTIMIZER_END),
            )
        ]

    def _inside(self, wrapper: Any, name: str, before: int, after: int) -> Callable[..., Any]:
        """Puts clocks around the original function inside the recorder's wrapper. Returns that function with its clocks."""
        timed = self._timed(wrapper.__wrapped__, self.ended, before, self.began, after)
        wrapper.__closure__[wrapper.__code__.co_freevars.index(name)].cell_contents = timed
        return timed

    def _outside(self, call: Callable[..., Any], before: int, after: int) -> Callable[..., Any]:
        return self._timed(call, self.began, before, self.ended, after)

    @staticmethod
    def _timed(
        call: Callable[..., Any], first: list[int], before: int, last: list[int], after: int
    ) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            first[before] = perf_counter_ns()
            try:
                return call(*args, **kwargs)
            finally:
                last[after] = perf_counter_ns()

        return timed

    @staticmethod
    def _clock(times: list[int], mark: int) -> Callable[..., None]:
        def clock(*_: Any) -> None:
            times[mark] = perf_counter_ns()

        return clock

    def turn(self, on: bool) -> None:
        fetch, backward = (self._next, self._backward) if on else (self._plain_next, self._plain_backward)
        dataloader._BaseDataLoaderIter.__next__ = self._outside(fetch, _FETCH, _BATCH)  # type: ignore[method-assign]
        torch.autograd.backward = self._outside(backward, _BACKWARD, _BACKWARD_END)
        for hooks, ours, begin, end in self._hooks:
            hooks.clear()
            hooks.update(enumerate([begin, *(ours if on else ()), end]))


def run_block(step: Callable[[], None], places: Places, steps: int) -> tuple[list[int], list[list[int]]]:
    """Returns the ns of each step, and the ns between the clocks of each of its marks."""
    until = time.perf_counter() + SETTLING_S
    while time.perf_counter() < until:
        step()
    whole, marks = [], []
    for _ in range(steps):
        began = perf_counter_ns()
        step()
        whole.append(perf_counter_ns() - began)
        marks.append([end - begin for begin, end in zip(places.began, places.ended, strict=True)])
    return whole, marks


def compare(step: Callable[[], None], places: Places, pairs: int, steps: int) -> dict[str, Any]:
    """Returns the extra time in the mean step, the median step, and each mark's mean: medians over pairs of blocks, and standard errors."""
    more, median_more, by_mark, off_us = [], [], [], []
    for pair in range(pairs):
        mean, median = {}, {}
        for on in (False, True) if pair % 2 else (True, False):
            places.turn(on)
            whole, marks = run_block(step, places, steps)
            mean[on] = [statistics.fmean(times) / 1e3 for times in zip(*marks, strict=True)]
            median[on] = statistics.median(map(sum, marks)) / 1e3
            if not on:
                off_us.append(statistics.median(whole) / 1e3)
        by_mark.append([b - a for a, b in zip(mean[False], mean[True], strict=True)])
        more.append(sum(by_mark[-1]))
        median_more.append(median[True] - median[False])
    return {
        "off_us": statistics.median(off_us),
        "more_us": statistics.median(more),
        "error_us": standard_error(more),
        "median_step_more_us": statistics.median(median_more),
        "median_step_error_us": standard_error(median_more),
        "pairs": pairs,
        "block_steps": steps,
        "marks_us": dict(zip(MARKS, map(statistics.median, zip(*by_mark, strict=True)), strict=True)),
    }


def fix_thinning(every: int) -> None:
    thinned = find_recorder().buffer.thinned
    thinned.every, thinned.budget = every, 1.0 if every == 1 else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=(SHORTEST, *SIZES), default="5ms")
    parser.add_argument("--pairs", type=int, default=8, help="blocks with and blocks without the recorder")
    parser.add_argument("--block", type=int, metavar="STEPS")
    parser.add_argument("--events", choices=("thinned", "each"))
    parser.add_argument(
        "--every", type=int, metavar="N", help="mark one block of steps in N in full, whatever marks cost"
    )
    parser.add_argument("--took", type=Path, required=True, metavar="FILE")
    asked = parser.parse_args()
    if RECORDER not in sys.modules:
        raise SystemExit("no recorder in this process: rn50-advisor run -- python tests/bench/marks.py ...")
    step = stepper(prepare(asked.size, ENDLESS))
    recorder = warm_up(step, asked.events)
    if asked.every:
        fix_thinning(asked.every)
    found = compare(step, Places(), asked.pairs, asked.block or BLOCK_STEPS[asked.size])
    check_events(recorder)
    write_took(asked.took, found)


if __name__ == "__main__":
    main()
