"""Trains on pairs of vectors that a data set makes: an item looks its label up by name, and draws a vector of another item."""

from __future__ import annotations

import argparse

import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

FEATURES = 24


class Pairs(Dataset[tuple[Tensor, int]]):
    def __init__(self, options: argparse.Namespace) -> None:
        generator = np.random.default_rng(0)
        self.vectors = generator.random((options.items, FEATURES), dtype=np.float32)
        self.names = [f"item-{number:07}" for number in range(options.items)]
        self.positions = {name: at for at, name in enumerate(self.names)} if options.look_up == "dict" else None
        self.permutes = options.other == "permuted"

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        label = self.position(f"item-{index:07}") % 2
        return torch.from_numpy(np.concatenate([self.vectors[index], self.vectors[self.other()]])), label

    def position(self, name: str) -> int:
        if self.positions is not None:
            return self.positions[name]
        return self.names.index(name)

    def other(self) -> int:
        if self.permutes:
            return int(np.random.permutation(len(self.vectors))[0])
        return np.random.randint(len(self.vectors))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=32)
    add("--items", type=int, default=20_000)
    add("--workers", type=int, default=0)
    add("--look-up", choices=("list", "dict"), default="dict")
    add("--other", choices=("permuted", "drawn"), default="drawn")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pairs(options), batch_size=options.batch, shuffle=True, num_workers=options.workers)
    net = nn.Sequential(nn.Linear(2 * FEATURES, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
    shared.training.train(loader, net, options.steps)


if __name__ == "__main__":
    main()
