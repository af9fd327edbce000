"""Trains a small net on pictures whose loading costs time: computing, reading, or now and then a lot of either."""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import queue
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import shared.group
import shared.models
import shared.serving
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset


def blur(picture: np.ndarray, ms: float) -> np.ndarray:
    """Applies as many filter passes as fit into `ms` of CPU time."""
    end_ns = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < end_ns:
        picture = (picture + np.roll(picture, 1, -1) + np.roll(picture, 1, -2)) / 3
    return picture


class Pictures(Dataset):
    def __init__(self, options: argparse.Namespace) -> None:
        self.transform_ms, self.large_ms, self.large_every = options.transform, options.large, options.large_every
        self.files = sorted(Path(options.files).iterdir()) if options.files else []
        self.length = len(self.files) or options.pictures
        self.asleep_s = options.asleep / 1e3
        self.url = options.url
        self.lock = multiprocessing.Lock() if options.lock else contextlib.nullcontext()
        self.picture = np.random.default_rng(0).random((3, 32, 32), dtype=np.float32)
        self.whitening, self.passes = np.eye(options.side, dtype=np.float32), options.passes
        self.kept, self.keep_bytes = [], options.keep << 10

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        picture = self.picture
        if self.files:
            picture = picture * (self.files[index].read_bytes()[-1] / 255)
        if self.asleep_s:
            with self.lock:  # a connection that all workers share
                time.sleep(self.asleep_s)
        if self.url:
            with urllib.request.urlopen(self.url) as answer:
                picture = picture * json.load(answer)[0]
        if self.transform_ms:
            picture = blur(picture, self.transform_ms)
        if self.keep_bytes:
            self.kept.append(np.ones(self.keep_bytes, np.uint8))  # like a cache that is never emptied
        for _ in range(self.passes):
            self.whitening = self.whitening @ self.whitening
        if self.large_ms and index % self.large_every == 0:
            picture = blur(picture, self.large_ms)  # an unusually large image
        return torch.from_numpy(picture), index % 10


def ahead(data: DataLoader[tuple[Tensor, int]], stop: threading.Event) -> Iterator[tuple[Tensor, Tensor]]:
    """A hand-written prefetcher: a thread iterates over the loader, the loop takes batches from a queue."""
    batches: queue.Queue[tuple[Tensor, Tensor] | None] = queue.Queue(2)

    def fill() -> None:
        for batch in data:
            while not stop.is_set():
                try:
                    batches.put(batch, timeout=0.1)
                    break
                except queue.Full:
                    pass
            if stop.is_set():
                return
        batches.put(None)

    thread = threading.Thread(target=fill)
    thread.start()
    try:
        yield from iter(batches.get, None)
    finally:
        stop.set()
        thread.join()


def evaluate(model: nn.Module, data: Iterable[tuple[Tensor, Tensor]]) -> int:
    """Number of correctly classified images."""
    with torch.no_grad():
        return sum(int((model(pictures).argmax(1) == labels).sum()) for pictures, labels in data)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=24)
    add("--threads", type=int, default=1)
    add("--pictures", type=int, default=100_000)
    add("--workers", type=int, default=0)
    add("--prefetch", type=int, metavar="BATCHES", help="of each worker")
    add("--persistent", action="store_true")
    add("--start", metavar="METHOD", help="of the workers: fork, spawn, forkserver")
    add("--evaluate", type=int, default=0, metavar="PICTURES", help="after each epoch")
    add("--any-order", action="store_true", help="take whichever batch is ready")
    add("--ahead", action="store_true", help="a thread of its own runs through the loader")
    add("--files", help="folder of pictures to read")
    add("--transform", type=float, default=0.0, metavar="MS", help="CPU time of a picture's preprocessing")
    add("--passes", type=int, default=0, help="products of two matrices for each picture, as NumPy computes them")
    add("--side", type=int, default=256, help="of these matrices")
    add("--keep", type=int, default=0, metavar="KB", help="of each picture, in the memory of who made it, for ever")
    add("--large", type=float, default=0.0, metavar="MS", help="CPU time on top for every --large-every'th picture")
    add("--large-every", type=int, default=64)
    add("--asleep", type=float, default=0.0, metavar="MS", help="waiting for each picture, as for a server's answer")
    add("--server", type=float, default=0.0, metavar="MS", help="a server's answer for each picture")
    add("--one-by-one", action="store_true", help="the server's answers")
    add("--lock", action="store_true", help="one worker at a time")
    add("--bind", type=int, help="each rank to this core, as launchers do that count wrong")
    add("--library", action="store_true", help="import a package that binds the process to a core")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.bind is not None:
        os.sched_setaffinity(0, {options.bind})
    if options.library:
        import one_core  # noqa: F401, PLC0415
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    shared.group.join()
    server, options.url = (
        shared.serving.start(options.server, one_by_one=options.one_by_one) if options.server else (None, "")
    )
    pictures = Pictures(options)
    sampler = DistributedSampler(pictures) if dist.is_initialized() else None
    workers = {
        "num_workers": options.workers,
        "persistent_workers": options.persistent,
        "multiprocessing_context": options.start,
        "prefetch_factor": options.prefetch,
    }
    data = DataLoader(
        pictures,
        batch_size=options.batch,
        sampler=sampler,
        shuffle=sampler is None,
        **workers,
        **({"in_order": False} if options.any_order else {}),  # since torch 2.6
    )
    some = Subset(pictures, range(options.evaluate))
    others = DataLoader(some, batch_size=options.batch, **workers) if options.evaluate else []
    model = shared.models.small_cnn(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while step < options.steps:
        for pictures_now, labels in ahead(data, threading.Event()) if options.ahead else data:
            loss = nn.functional.cross_entropy(model(pictures_now), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
        evaluate(model, others)
    shared.group.leave()
    if server:
        server.terminate()


if __name__ == "__main__":
    main()
