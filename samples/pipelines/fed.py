"""Trains a small net on pictures that are not on disk: they come from a remote store, from memory, or sometimes very late."""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Pictures(Dataset):
    """Noise of `side` pixels. Each picture costs a wait and CPU work; one in `late_every` costs an extra long wait."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.picture = np.random.default_rng(0).random((3, options.side, options.side), dtype=np.float32)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        options = self.options
        wait_ms = options.wait + (options.late if index % options.late_every == 0 else 0.0)
        if wait_ms:
            time.sleep(wait_ms / 1000)  # latency of an object store
        picture = self.picture[:, :, ::-1] if index % 2 else self.picture
        for _ in range(options.passes):
            shift = index % 7 - 3
            picture = (picture + np.roll(picture, shift, 1) + np.roll(picture, shift, 2)) / 3
        return torch.from_numpy(np.ascontiguousarray(picture)), index % 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--side", type=int, default=32)
    add("--width", type=int, default=24)
    add("--workers", type=int, default=0)
    add("--wait", type=float, default=0.0, metavar="MS", help="asleep, for each picture")
    add("--late", type=float, default=0.0, metavar="MS", help="asleep on top, for one in --late-every pictures")
    add("--late-every", type=int, default=100)
    add("--passes", type=int, default=0, help="of a filter over each picture")
    return parser.parse_args()


def net(width: int) -> nn.Module:
    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, 10)]
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(32), nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3), *head
    )


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    pictures = Pictures(options)
    sampler = DistributedSampler(pictures) if dist.is_initialized() else None
    data = DataLoader(
        pictures,
        options.batch,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    model = net(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs, labels) in enumerate(data, start=1):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= options.steps:
            break
    if dist.is_initialized():
        dist.barrier()  # leave together: gloo sometimes aborts a rank whose peer has left
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
