"""Trains on the rows of a pandas table, which are taken out of it one by one or once as an array."""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset[tuple[Tensor, int]]):
    def __init__(self, table: pd.DataFrame, arrays: bool, work: int) -> None:
        self.table = table
        self.columns = [name for name in table.columns if name != "label"]
        self.values = table[self.columns].to_numpy("float32") if arrays else None
        self.labels = table["label"].to_numpy()
        self.work = work

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        values = self.row(at) if self.values is None else self.values[at].copy()
        for _ in range(self.work):
            values = np.sort(np.tile(values, 30))[: values.size]
        return torch.from_numpy(values), int(self.labels[at])

    def row(self, at: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return self.table.iloc[at][self.columns].to_numpy("float32")


def network(frozen: int) -> nn.Module:
    """Without frozen layers a step computes about 5 ms; each of these adds 10 ms to its forward pass."""
    if not frozen:
        return nn.Sequential(nn.Linear(31, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 2))
    trunk = nn.Sequential(nn.Linear(31, 2048), *(nn.Linear(2048, 2048) for _ in range(frozen)), nn.ReLU())
    trunk.requires_grad_(False)
    return nn.Sequential(trunk, nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 2))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=64)
    add("--workers", type=int, default=0)
    add("--arrays", action="store_true", help="take the columns out of the table once")
    add("--work", type=int, default=0, help="times that an item's values are sorted")
    add("--frozen", type=int, default=0, help="layers that are not trained")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.standard_normal((20_000, 30)), columns=[f"x{n}" for n in range(30)])
    table["kind"] = random.integers(0, 3, 20_000)
    table["label"] = random.integers(0, 2, 20_000)
    data = Rows(table, options.arrays, options.work)
    loader = DataLoader(data, batch_size=options.batch, shuffle=True, num_workers=options.workers)
    shared.training.train(loader, network(options.frozen), options.steps)


if __name__ == "__main__":
    main()
