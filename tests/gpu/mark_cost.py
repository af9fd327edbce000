"""Cost of the recorder's marks with real CUDA events: `mark_cost.py OUT.json`.

Times each call that a mark makes, the marks of whole steps, on an idle GPU and behind a queue of kernels, and what an event costs the GPU
itself. Prints the cost of a step's marks; exits 1 if it is above 50 us, which is what the recorder may take of a step with events.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from rn50_advisor.probes.rank.gpu.gpu_events import GpuTimes

PHASES = ("input_wait", "forward", "backward", "optimizer", "gap")
STEPS = 500
CALLS = 1000
KERNELS = 20  # between two marks, behind a queue
# CUDA queues about a thousand launches; beyond that the host waits for room, at a mark as well as at a kernel.
STEPS_QUEUED = 5
STEP_US_MAX = 50.0


class Unread:
    """Takes the place of the ring: the row that a step writes is measured elsewhere."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, kind: int, flag: int, row: Any) -> None:
        self.rows.append(row)


def timed_us(call: Callable[[], Any], times: int = CALLS) -> dict[str, float]:
    """Median and 99th percentile of one call, in microseconds."""
    took = []
    for _ in range(times):
        began = perf_counter_ns()
        call()
        took.append((perf_counter_ns() - began) / 1e3)
    took.sort()
    return {"median_us": round(statistics.median(took), 3), "p99_us": round(took[int(0.99 * (len(took) - 1))], 3)}


def single_calls(cuda: Any) -> dict[str, dict[str, float]]:
    """The calls that a mark and the end of a step make."""
    stream, first, last = cuda.current_stream(0), cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    found = {
        "event made": timed_us(lambda: cuda.Event(enable_timing=True)),
        "event made and recorded": timed_us(lambda: cuda.Event(enable_timing=True).record(stream)),
        "record": timed_us(lambda: first.record(stream)),
        "current_stream": timed_us(lambda: cuda.current_stream(0)),
        "is_current_stream_capturing": timed_us(cuda.is_current_stream_capturing),
        "memory_stats": timed_us(lambda: cuda.memory_stats(0), CALLS // 10),
    }
    last.record(stream)
    cuda.synchronize()
    return found | {"query": timed_us(last.query), "elapsed_time": timed_us(lambda: first.elapsed_time(last))}


def steps_us(cuda: Any, kernel: Callable[[], Any], kernels: int) -> dict[str, float]:
    """What the marks of a step and its end take the host, with so many kernels launched before each mark."""
    times, ring, took = GpuTimes(cuda, 0), Unread(), []
    for step in range(STEPS):
        if step % STEPS_QUEUED == 0:
            cuda.synchronize()
        spent = 0
        times.turn(step, 0, 0)
        for phase in PHASES:
            for _ in range(kernels):
                kernel()
            began = perf_counter_ns()
            times.mark(phase)
            spent += perf_counter_ns() - began
        began = perf_counter_ns()
        times.close(step, ring)
        took.append((spent + perf_counter_ns() - began) / 1e3)
    cuda.synchronize()
    took.sort()
    return {
        "median_us": round(statistics.median(took), 3),
        "p99_us": round(took[int(0.99 * (len(took) - 1))], 3),
        "steps_read": len(ring.rows),
        "steps_dropped": times.dropped,
    }


def apart_us(cuda: Any, kernel: Callable[[], Any], kernels: int) -> dict[str, float]:
    """Stream time between two events with nothing between them, after so many kernels: shows when a gap counts as idle."""
    stream, apart = cuda.current_stream(0), []
    for _ in range(CALLS // 5):
        first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        for _ in range(kernels):
            kernel()
        first.record(stream)
        last.record(stream)
        cuda.synchronize()
        apart.append(1e3 * first.elapsed_time(last))
    return {"median_us": round(statistics.median(apart), 2), "max_us": round(max(apart), 2)}


def on_the_gpu_us(cuda: Any, kernel: Callable[[], Any]) -> float:
    """What an event among kernels costs the stream: the same kernels with an event after each, less those without."""
    stream, found = cuda.current_stream(0), []
    between = [cuda.Event(enable_timing=True) for _ in range(CALLS)]
    for _ in range(5):
        took = {}
        for events in (False, True):
            first, last = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            first.record(stream)
            for event in between:
                kernel()
                if events:
                    event.record(stream)
            last.record(stream)
            cuda.synchronize()
            took[events] = first.elapsed_time(last)
        found.append(1e3 * (took[True] - took[False]) / CALLS)
    return round(statistics.median(found), 3)


def measured(cuda: Any, kernel: Callable[[], Any]) -> dict[str, Any]:
    kernel()
    cuda.synchronize()
    return {
        "calls": single_calls(cuda),
        "step, nothing queued": steps_us(cuda, kernel, 0),
        "step, kernels queued": steps_us(cuda, kernel, KERNELS),
        "apart, idle": apart_us(cuda, kernel, 0),
        "apart, kernels queued": apart_us(cuda, kernel, KERNELS),
        "event on the stream_us": on_the_gpu_us(cuda, kernel),
    }


def main(out: Path, cuda: Any, kernel: Callable[[], Any]) -> int:
    found = measured(cuda, kernel)
    out.write_text(json.dumps(found, indent=1))
    idle, queued = (found[f"step, {what} queued"] for what in ("nothing", "kernels"))
    apart = max(found[f"apart, {what}"]["max_us"] for what in ("idle", "kernels queued"))
    print(
        f"marks of a step {idle['median_us']:.1f} us, behind kernels {queued['median_us']:.1f} us (p99 {queued['p99_us']:.0f}),",
        f"one record {found['calls']['record']['median_us']:.1f} us, {found['event on the stream_us']:.1f} us on the stream;",
        f"events with nothing between them up to {apart:.0f} us apart; {queued['steps_dropped']} of {STEPS} steps dropped",
    )
    return max(idle["median_us"], queued["median_us"]) > STEP_US_MAX


def on_gpu(out: Path) -> int:
    import torch

    if not torch.cuda.is_available():
        print("no GPU that torch can use")
        return 1
    numbers = torch.zeros(1 << 22, device="cuda:0")  # 16 MB: a kernel takes longer than its launch
    return main(out, torch.cuda, lambda: numbers.add_(1.0))


if __name__ == "__main__":
    sys.exit(on_gpu(Path(sys.argv[1])))
