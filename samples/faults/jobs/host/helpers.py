"""Trains a small net while helper processes that the job has started compute something else, such as embeddings for a search."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import shared.models
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def embed(share: float) -> None:
    """Computes for this share of the time, until the parent process is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        end_ns = time.thread_time_ns() + int(20e6 * share)
        while time.thread_time_ns() < end_ns:
            sum(n * n for n in range(1000))
        if share < 1.0:
            time.sleep(0.02 * (1.0 - share))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--width", type=int, default=32)
    add("--share", type=float, default=0.0, help="of a core that the helper keeps busy")
    add("--embed", action="store_true", help="be the helper")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.embed:
        embed(options.share)
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    helper = None
    if options.share and dist.get_rank() == 0:
        helper = subprocess.Popen([sys.executable, __file__, "--embed", f"--share={options.share}"])
    memory = TensorDataset(torch.rand(512, 3, 32, 32), torch.randint(10, (512,)))
    model = DistributedDataParallel(shared.models.small_cnn(options.width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for x, y in DataLoader(memory, batch_size=16, shuffle=True):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    dist.barrier()
    if helper is not None:
        helper.kill()
        helper.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
