"""Trains a small net whose steps change in the course of the run: slower from some step on, or with periodic stalls."""

from __future__ import annotations

import argparse
import os
import random
import time

import shared.group
import shared.models
import torch
import torch.distributed as dist
from shared.extra_work import extra_work
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))


def fetch_hard_examples(ms: float) -> None:
    """Waits for a slow service."""
    time.sleep(ms / 1000)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=24)
    add("--slow", type=float, default=0.0, metavar="MS", help="computing besides, in each step from --slow-from on")
    add("--slow-from", type=int, default=0)
    add("--slow-until", type=int, default=1 << 30)
    add("--stall", type=float, default=0.0, metavar="MS")
    add("--every", type=int, default=10)
    add("--by-chance", action="store_true", help="as often, but at random")
    add("--rank", type=int, default=-1, help="only this rank; -1: all")
    return parser.parse_args()


def stalls_now(step: int, options: argparse.Namespace, chance: random.Random) -> bool:
    return chance.random() < 1 / options.every if options.by_chance else step % options.every == 0


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(1024, 3, 32, 32), torch.randint(10, (1024,)))
    data = DataLoader(memory, batch_size=options.batch, shuffle=True)
    model = shared.models.small_cnn(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    is_slow, chance, step = options.rank in (-1, RANK), random.Random(7), 0
    while step < options.steps:
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            if is_slow and options.slow and options.slow_from <= step < options.slow_until:
                loss = loss + extra_work(options.slow)
            if is_slow and options.stall and stalls_now(step, options, chance):
                fetch_hard_examples(options.stall)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
