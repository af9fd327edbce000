"""Trains a small net under DDP until the file in the first argument exists, which the test creates."""

import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

AT_MOST_S = 240.0  # so that a failed test leaves no process behind


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    until_s = time.monotonic() + AT_MOST_S
    ended = torch.zeros(1)
    while not ended.item():
        model(torch.rand(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        ended.fill_(float(Path(sys.argv[1]).exists() or time.monotonic() > until_s))
        dist.all_reduce(ended)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
