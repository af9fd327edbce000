"""Trains a small net without a loader: the loop slices tensors. Logs, waits or evaluates in between, or one rank computes more."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import shared.group
import shared.models
import torch
import torch.distributed as dist
from between_steps import check, write_log
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ.get("RANK", "0"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=48)
    add("--write-log", type=float, default=0.0, metavar="MS")
    add("--pause", type=float, default=0.0, metavar="MS")
    add("--check", type=int, default=0, metavar="PICTURES", help="an evaluation of so many")
    add("--every", type=int, default=1, help="log, pause or evaluate only after every so many steps")
    add("--views", type=int, default=0, help="so many more forward passes of the second rank, without gradients")
    return parser.parse_args()


def after_step(step: int, model: nn.Module, held_out: Tensor, loss: Tensor, options: argparse.Namespace) -> None:
    if step % options.every:
        return
    if options.write_log:
        write_log(options.out / f"log{RANK}.txt", loss, options.write_log)
    if options.pause:
        time.sleep(options.pause / 1000)
    if options.check:
        check(model, held_out[: options.check])


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    pictures, labels = torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,))
    plain = shared.models.small_cnn(options.width)
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(options.steps):
        at = step * options.batch % 2048
        x, y = pictures[at : at + options.batch], labels[at : at + options.batch]
        if RANK == 1:
            with torch.no_grad():
                for _ in range(options.views):
                    plain(x.flip(-1))
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        after_step(step, plain, pictures, loss, options)
    shared.group.leave()


if __name__ == "__main__":
    main()
