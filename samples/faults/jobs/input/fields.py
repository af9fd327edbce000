"""Trains on patches of weather fields in a zarr or HDF5 array: some time steps and all channels of a window that lies anywhere."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import shared.training
import torch
import zarr
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

TIMES, CHANNELS, SIDE = 240, 4, 160
STEPS, PATCH = 6, 48


class Patches(Dataset[tuple[Tensor, int]]):
    """Each process opens the array for itself, when it makes its first item."""

    def __init__(self, path: Path, length: int) -> None:
        self.path = path
        self.length = length
        self.fields: Any = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> tuple[Tensor, int]:
        if self.fields is None:
            packed = self.path.suffix == ".h5"
            self.fields = h5py.File(self.path, "r")["fields"] if packed else zarr.open_array(self.path, mode="r")
        draw = np.random.default_rng(at)
        t, y, x = (int(draw.integers(0, n)) for n in (TIMES - STEPS, SIDE - PATCH, SIDE - PATCH))
        patch = self.fields[t : t + STEPS, :, y : y + PATCH, x : x + PATCH]
        return torch.from_numpy(np.asarray(patch, dtype=np.float32)), at % 10


def write(path: Path, chunk: tuple[int, ...]) -> None:
    noise = np.random.default_rng(0).normal(size=(TIMES, CHANNELS, SIDE, SIDE))
    values = (np.cumsum(noise, axis=3) * 30).astype(np.int16)
    if path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("fields", data=values, chunks=chunk, compression="gzip")
    else:
        zarr.create_array(path, shape=values.shape, chunks=chunk, dtype="int16")[:] = values


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--library", choices=("h5py", "zarr"), default="zarr")
    add("--chunk", default="1x1x48x48", help="time steps, channels, rows and columns")
    add("--workers", type=int, default=0)
    add("--wide", type=int, default=32)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("fields.h5" if options.library == "h5py" else "fields.zarr")
        write(path, tuple(map(int, options.chunk.split("x"))))
        workers = options.workers
        loader = DataLoader(Patches(path, 100_000), 8, True, num_workers=workers, drop_last=True)
        wide = options.wide
        net = nn.Sequential(nn.Flatten(1, 2), nn.Conv2d(STEPS * CHANNELS, wide, 3, 2, 1), nn.ReLU())
        deeper = nn.Sequential(
            net, nn.Conv2d(wide, 2 * wide, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        shared.training.train(loader, nn.Sequential(deeper, nn.Linear(2 * wide, 10)), options.steps)


if __name__ == "__main__":
    main()
