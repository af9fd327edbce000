"""Trains a small net on pictures whose loader costs time: it is made anew, or its order is slow as a whole or for each index."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import shared.group
import shared.models
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, get_worker_info


def compute(ms: float) -> None:
    """Uses this much CPU time."""
    end_ns = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < end_ns:
        pass


class Pictures(Dataset):
    def __init__(self, count: int, transform_ms: float) -> None:
        self.count, self.transform_ms = count, transform_ms
        self.picture = torch.from_numpy(np.random.default_rng(0).random((3, 32, 32), dtype=np.float32))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        compute(self.transform_ms)
        return self.picture, index % 10


class Shards(IterableDataset):
    """Gives each worker its own shard. Slow to read are the first shard's pictures or, if `dealt`, one in `num_workers` of each shard."""

    def __init__(self, pictures: Pictures, far_ms: float, dealt: bool) -> None:
        self.pictures, self.far_ms, self.dealt = pictures, far_ms, dealt

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        info = get_worker_info()
        first, every = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, len(self.pictures), every):
            if (index // every) % every == 0 if self.dealt else first == 0:
                time.sleep(self.far_ms / 1e3)
            yield self.pictures[index]


class Drawn(Sampler):
    """A sampler that uses CPU time: `order_ms` when it begins, and `index_ms` for each index."""

    def __init__(self, count: int, order_ms: float, index_ms: float) -> None:
        self.count, self.order_ms, self.index_ms = count, order_ms, index_ms

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        compute(self.order_ms)
        for index in torch.randperm(self.count).tolist():
            if self.index_ms:
                compute(self.index_ms)
            yield index


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=48)
    add("--pictures", type=int, default=1600)
    add("--workers", type=int, default=0)
    add("--persistent", action="store_true")
    add("--transform", type=float, default=0.0, metavar="MS", help="CPU time of a picture's preprocessing")
    add("--order", type=float, default=0.0, metavar="MS", help="CPU time of an epoch's order")
    add("--index", type=float, default=0.0, metavar="MS", help="CPU time of drawing one index")
    add("--far", type=float, default=0.0, metavar="MS", help="waiting for each picture of the first worker's shard")
    add("--shards", action="store_true", help="a stream; each worker reads a shard of its own")
    add("--dealt", action="store_true", help="the far pictures evenly over the workers")
    add("--anew", choices=("never", "epoch", "step"), default="never", help="make the loader, or take its iterator")
    return parser.parse_args()


def batches(options: argparse.Namespace) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields batches without end."""
    pictures = Pictures(options.pictures, options.transform)
    sampler = None if options.shards else Drawn(options.pictures, options.order, options.index)
    data = Shards(pictures, options.far, options.dealt) if options.shards else pictures
    workers = {"num_workers": options.workers, "persistent_workers": options.persistent}
    kept = None
    while True:
        if kept is None or options.anew == "epoch":
            kept = DataLoader(data, batch_size=options.batch, sampler=sampler, **workers)
        if options.anew == "step":
            yield next(iter(kept))
        else:
            yield from kept


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    model = shared.models.small_cnn(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _, (pictures, labels) in zip(range(options.steps), batches(options), strict=False):
        loss = nn.functional.cross_entropy(model(pictures), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    shared.group.leave()


if __name__ == "__main__":
    main()
