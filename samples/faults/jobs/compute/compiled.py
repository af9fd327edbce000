"""Trains a small net on sequences of many lengths, in a function that torch.compile compiles anew for each length."""

from __future__ import annotations

import argparse
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--every", type=int, default=10, help="a batch of another length, each so many steps from --first on")
    add("--first", type=int, default=0)
    add("--last", type=int, default=1 << 30)
    add("--pad", action="store_true", help="every batch to the same length")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 256
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    @torch.compile(backend="eager", dynamic=False)
    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(model(x).mean(dim=1), y)

    data = TensorDataset(torch.randn(512, 96, 64), torch.randint(10, (512,)))
    lengths = list(range(16, 96))
    random.Random(3).shuffle(lengths)
    step = 0
    while step < options.steps:
        for x, y in DataLoader(data, batch_size=32, shuffle=True):
            odd = options.first <= step <= options.last and step % options.every == 0
            length = lengths[(step // options.every) % len(lengths)] if odd and not options.pad else 96
            optimizer.zero_grad()
            loss_of(x[:, :length].contiguous(), y).backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
