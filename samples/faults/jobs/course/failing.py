"""Trains a small net on two ranks until the second one stops: it hangs, spins, is stopped, leaves its peer, dies, or has no memory left."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time

import shared.models
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

PAUSE_S = 18.0  # the agent checks from 15 s on and reports a hang from 30 s on


def stuck_in_user_code() -> None:
    while True:
        signal.pause()


def find_nothing() -> None:
    found = False
    while not found:
        found = False  # never becomes true


def read_bad_record(step: int) -> None:
    raise ValueError(f"record {step} is damaged")


def stop_at(step: int, at: int) -> None:
    if step == at:
        os.kill(os.getpid(), signal.SIGSTOP)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--at", type=int, default=40, help="the step after which it happens")
    what = (
        *(
            "hang",
            "first",
            "spin",
            "collective",
            "skips",
            "uneven",
            "leave",
            "stop",
            "pauses",
            "helper",
            "kill",
            "raise",
        ),
        "memory",
    )
    add("--what", choices=what, required=True)
    return parser.parse_args()


def fail(what: str, step: int, at: int, hoard: list[Tensor]) -> None:
    if what == "hang":
        stuck_in_user_code()
    elif what == "spin":
        find_nothing()
    elif what == "pauses" and step == at:
        time.sleep(PAUSE_S)
    elif what == "helper" and step == at:
        helper = subprocess.Popen(["sleep", "60"])
        helper.kill()  # as a library does with a helper that it no longer needs
        helper.wait()
    elif what == "leave":
        sys.exit()  # its data is shorter, and it does not wait for the others
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "raise":
        read_bad_record(step)
    elif what == "memory":
        hoard.append(torch.ones(16 << 18))  # 16 MiB per step, never freed


def train(options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    memory = TensorDataset(torch.rand(1024, 3, 32, 32), torch.randint(10, (1024,)))
    data = DataLoader(memory, batch_size=16)
    model = DistributedDataParallel(shared.models.small_cnn(24))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    metrics = dist.new_group()
    hoard: list[Tensor] = []
    step = 0
    if rank == 1 and options.what == "stop":
        # during its backward pass; the sender is not visible
        next(model.parameters()).register_hook(lambda _: stop_at(step, options.at))
    while step < options.steps:
        for x, y in data:
            if rank == 1 and options.what == "first":
                stuck_in_user_code()  # before its first backward pass
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if rank == 1 and step >= options.at:
                fail(options.what, step, options.at, hoard)
                if options.what == "uneven":
                    return  # its data is shorter
            if options.what == "skips" and (rank == 0 or step < options.at):
                dist.all_reduce(loss.detach(), group=metrics)  # the second rank skips one
            if rank == 0 and step == options.at and options.what == "collective":
                dist.all_reduce(loss.detach(), group=metrics)  # only the first rank calls this one
            if step >= options.steps:
                break


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    train(options)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
