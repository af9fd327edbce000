"""Made-up traces of training loops, as torch.profiler exports them. Not a test."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from traces import ADD, ALL_REDUCE, CONV_FP32, TraceBook

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
SEVERAL = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def traced_loop(
    *,
    steps: int = 5,
    fetch: float = 2_000.0,
    loader: str = SINGLE,
    forward: float = 30_000.0,
    backward: float = 60_000.0,
    update: float = 5_000.0,
    between: float = 500.0,
    late: float = 0.0,
    exchange: float = 0.0,
    profiler_step: bool = True,
    on_gpu: bool = True,
    begin: float = 1_000_000.0,
) -> TraceBook:
    """A loop of fetch, forward, backward and update; microseconds. The GPU works as long as the host.

    `late`: the host's own work before the forward, as on a straggler. `exchange`: time of an all-reduce after the backward.
    """
    book, at = TraceBook(), begin
    for number in range(steps):
        length = fetch + late + forward + backward + exchange + update + between
        if profiler_step:
            book.host(f"ProfilerStep#{number + 5}", at, length, cat="user_annotation")
        if fetch:
            book.host(loader, at, fetch, cat="user_annotation")
        at += fetch + late
        shapes = {"Input Dims": [[16, 3, 224, 224], [64, 3, 7, 7]], "Input type": ["float", "float"]}
        operator = book.host("aten::conv2d", at, forward, **shapes)
        if on_gpu:
            book.kernel(CONV_FP32, at + 10, forward - 20, launched=at, operator=operator)
        at += forward
        book.host("autograd::engine::evaluate_function: ConvolutionBackward0", at, backward, tid=99)
        if on_gpu:
            book.kernel(CONV_FP32, at + 10, backward - 20, launched=at)
        at += backward
        if exchange:
            book.kernel(ALL_REDUCE, at, exchange, launched=at - 5, stream=20)
            at += exchange
        book.host("Optimizer.step#SGD.step", at, update, cat="user_annotation")
        if on_gpu:
            book.kernel(ADD, at + 10, update - 20, launched=at)
        at += update + between
    return book


def written_trace(path: Path, book: TraceBook, **header: Any) -> Path:
    """Writes the trace, compressed if the name says so, with these further entries."""
    data = json.dumps({**book.document(), **header}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 1, mtime=0) if path.suffix == ".gz" else data)
    return path
