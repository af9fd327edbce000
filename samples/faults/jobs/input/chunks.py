"""Trains on images of an HDF5 file, in a shuffled order, of which each lies in a chunk of its own or together with others."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import h5py
import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIDE = 128


class Slices(Dataset[tuple[Tensor, int]]):
    """Each process opens the file for itself, when it makes its first item."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self.length = length
        self.file: h5py.File | None = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["images"][at].astype(np.float32)), at % 10


def write(path: Path, options: argparse.Namespace) -> None:
    pictures = np.random.default_rng(0).integers(0, 8, (options.length, SIDE, SIDE), dtype=np.uint8)
    with h5py.File(path, "w") as file:
        file.create_dataset("images", data=pictures, chunks=(options.each, SIDE, SIDE), compression="gzip")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--length", type=int, default=4096)
    add("--each", type=int, default=32, help="images in a chunk")
    add("--workers", type=int, default=0)
    add("--wide", type=int, default=256)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.h5"
        write(path, options)
        workers = options.workers
        loader = DataLoader(
            Slices(path, options.length), 16, True, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        wide = options.wide
        net = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU())
        shared.training.train(loader, nn.Sequential(net, nn.Linear(wide, 10)), options.steps)


if __name__ == "__main__":
    main()
