"""Trains a net with many parameters relative to its computing, so that each step sends a lot."""

from __future__ import annotations

import argparse
import contextlib

import shared.group
import torch
import torch.distributed as dist
from shared.extra_work import extra_work
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def perceptron(hidden: int, layers: int) -> nn.Sequential:
    inner = [part for _ in range(layers) for part in (nn.Linear(hidden, hidden), nn.ReLU())]
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, hidden), nn.ReLU(), *inner, nn.Linear(hidden, 10))


class RegisteredLastFirst(nn.Module):
    """The same net with its head registered before its trunk: DDP's first buckets hold the gradients that come last."""

    def __init__(self, net: nn.Sequential) -> None:
        super().__init__()
        self.layers = nn.ModuleList(reversed(net))

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


def wrapped(net: nn.Module, options: argparse.Namespace) -> DistributedDataParallel:
    return DistributedDataParallel(net, find_unused_parameters=options.find_unused, bucket_cap_mb=options.bucket_mb)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=80)
    add("--batch", type=int, default=64)
    add("--hidden", type=int, default=512)
    add("--layers", type=int, default=2)
    add("--accumulate", type=int, default=1)
    add("--exchange-each", action="store_true", help="after each batch, not only after the last of a step")
    add("--compress", action="store_true", help="send bfloat16")
    add("--find-unused", action="store_true")
    add("--last-first", action="store_true", help="layers are registered from the last to the first")
    add("--bucket-mb", type=int, help="of DistributedDataParallel's buckets; its own default otherwise")
    add(
        "--by-hand",
        action="store_true",
        help="average the gradients after the backward pass, without DistributedDataParallel",
    )
    add("--slow-compute", type=float, default=0.0, metavar="MS", help="a step of the last rank, beyond the others'")
    return parser.parse_args()


def average_gradients(net: nn.Module) -> None:
    """Averages gradients one by one, as many tutorials do."""
    for parameter in net.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(4096, 3, 32, 32), torch.randint(10, (4096,)))
    data = DataLoader(memory, batch_size=options.batch, shuffle=True, drop_last=True)
    torch.manual_seed(0)  # the same weights on all ranks, also where nothing sends them
    layers = perceptron(options.hidden, options.layers)
    net: nn.Module = RegisteredLastFirst(layers) if options.last_first else layers
    model = net if options.by_hand else wrapped(net, options)
    if options.compress:
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    slower_ms = options.slow_compute if dist.get_rank() == dist.get_world_size() - 1 else 0.0
    batches = 0
    while batches < options.steps * options.accumulate:
        for x, y in data:
            batches += 1
            last = batches % options.accumulate == 0
            with contextlib.nullcontext() if last or options.exchange_each else model.no_sync():
                loss = nn.functional.cross_entropy(model(x), y) / options.accumulate
                (loss + extra_work(slower_ms)).backward()
            if options.by_hand:
                average_gradients(net)
            if last:
                optimizer.step()
                optimizer.zero_grad()
            if batches >= options.steps * options.accumulate:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
