"""Trains a small net after a long start: walks an index first, or takes long for the first step, as a compiler would."""

from __future__ import annotations

import argparse
import time

import shared.models
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_index(seconds: float) -> None:
    """Waits, as a walk through folders on a remote file system mostly does."""
    time.sleep(seconds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--index", type=float, default=0.0, metavar="S", help="before the data is there")
    add("--compile", type=float, default=0.0, metavar="S", help="in the first step")
    add("--steps", type=int, default=200)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    build_index(options.index)
    memory = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    data = DataLoader(memory, batch_size=16, shuffle=True)
    model = shared.models.small_cnn(48)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for x, y in data:
            logits = model(x)
            if step == 0:
                time.sleep(options.compile)
            loss = nn.functional.cross_entropy(logits, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break


if __name__ == "__main__":
    main()
