"""Trains a small net on samples of which each rank, or each worker of a stream, gets a share of its own, or all of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice
from typing import Any

import shared.group
import shared.models
import shared.training
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, IterableDataset, get_worker_info

Sample = tuple[Tensor, int]


class Pictures(Dataset[Sample]):
    def __init__(self, count: int, transform_ms: float) -> None:
        self.transform_ms = transform_ms
        self.pictures = torch.rand(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> Sample:
        end_ns = time.thread_time_ns() + self.transform_ms * 1e6
        while time.thread_time_ns() < end_ns:
            pass
        return self.pictures[index], index % 10


class Stream(IterableDataset[Sample]):
    def __init__(self, pictures: Pictures, divided: bool) -> None:
        self.pictures, self.divided = pictures, divided

    def __iter__(self) -> Iterator[Sample]:
        numbers = iter(range(len(self.pictures)))
        info = get_worker_info()
        if self.divided and info is not None:
            numbers = islice(numbers, info.id, None, info.num_workers)
        for number in numbers:
            yield self.pictures[number]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=48)
    add("--pictures", type=int, default=2048)
    add("--transform", type=float, default=0.0, metavar="MS", help="CPU time of a picture's preprocessing")
    add("--stream", action="store_true", help="the data set yields its samples in order")
    add("--workers", type=int, default=0)
    add("--divided", action="store_true", help="among ranks, or a stream among workers")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    shared.group.join()
    torch.manual_seed(0)  # as for repeatable runs: on all ranks the same order
    pictures = Pictures(options.pictures, options.transform)
    data: Dataset[Any] = Stream(pictures, options.divided) if options.stream else pictures
    sampler = DistributedSampler(pictures) if options.divided and dist.is_initialized() else None
    shuffle = None if options.stream else sampler is None
    workers = {"num_workers": options.workers, "persistent_workers": options.workers > 0}
    loader = DataLoader(data, batch_size=options.batch, sampler=sampler, shuffle=shuffle, **workers)
    model = shared.models.small_cnn(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    shared.training.train(loader, model, options.steps)
    shared.group.leave()


if __name__ == "__main__":
    main()
