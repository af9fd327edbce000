"""Trains a small vision transformer on ranks that it starts itself with torch.multiprocessing.spawn."""

from __future__ import annotations

import argparse
import tempfile

import shared.group
import shared.models
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--ranks", type=int, default=2)
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--depth", type=int, default=4)
    add("--threads", type=int, default=1, help="compute threads a rank")
    add("--workers", type=int, default=0)
    add("--find-unused", action="store_true")
    return parser.parse_args()


def work(rank: int, options: argparse.Namespace, rendezvous: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}/store", rank=rank, world_size=options.ranks)
    pictures = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    sampler = DistributedSampler(pictures)
    data = DataLoader(
        pictures,
        batch_size=options.batch,
        sampler=sampler,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    model = DistributedDataParallel(
        shared.models.TinyViT(depth=options.depth), find_unused_parameters=options.find_unused
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    step = epoch = 0
    while step < options.steps:
        sampler.set_epoch(epoch)
        epoch += 1
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


def main() -> None:
    options = parse()
    with tempfile.TemporaryDirectory() as rendezvous:
        mp.spawn(work, args=(options, rendezvous), nprocs=options.ranks)


if __name__ == "__main__":
    main()
