"""Trains on items of arrays that lie together in files, which are read whole for each item, or once."""

from __future__ import annotations

import argparse
import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SHAPE = (3, 32, 32)
Item = tuple[Tensor, int]


class Archive(Dataset[Item]):
    """An `.npz` file with one array of all images, opened where the first item is made."""

    def __init__(self, folder: Path, length: int) -> None:
        self.path = folder / "all.npz"
        self.length = length
        self.archive: Any = None

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> Item:
        if self.archive is None:
            self.archive = self.opened()
        return torch.from_numpy(self.archive["images"][at]).float(), int(self.archive["labels"][at])

    def opened(self) -> Any:
        return np.load(self.path)


class Unpacked(Archive):
    def opened(self) -> Any:
        return dict(np.load(self.path))


class Own(Dataset[Item]):
    """An `.npz` file with an array for each image."""

    def __init__(self, folder: Path, length: int) -> None:
        self.archive = np.load(folder / "own.npz")
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> Item:
        return torch.from_numpy(self.archive[f"image{at}"]).float(), at % 10


class Shards(Dataset[Item]):
    """Files of `each` images."""

    def __init__(self, folder: Path, length: int, each: int) -> None:
        self.paths = sorted(folder.glob("*.pt"))
        self.length = length
        self.each = each

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, at: int) -> Item:
        shard, row = divmod(at, self.each)
        return self.read(self.paths[shard])[row].float(), at % 10

    def read(self, path: Path) -> Tensor:
        images: Tensor = torch.load(path)
        return images


class KeptShards(Shards):
    @functools.cache  # noqa: B019 - the data set lives as long as the process
    def read(self, path: Path) -> Tensor:
        images: Tensor = torch.load(path)
        return images


def write(folder: Path, layout: str, length: int, each: int) -> None:
    pictures = np.random.default_rng(0).integers(0, 8, (length, *SHAPE), dtype=np.uint8)
    if layout == "archive":
        np.savez_compressed(folder / "all.npz", images=pictures, labels=np.arange(length) % 10)
    elif layout == "own":
        named: dict[str, Any] = {f"image{number}": picture for number, picture in enumerate(pictures)}
        np.savez_compressed(folder / "own.npz", **named)
    for number in range(0, length, each) if layout == "shards" else ():
        torch.save(torch.from_numpy(pictures[number : number + each]), folder / f"{number:06}.pt")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=120)
    add("--length", type=int, default=512)
    add("--each", type=int, default=512, help="images in a file of `shards`")
    add("--workers", type=int, default=0)
    add("--layout", choices=("archive", "own", "shards"), default="archive")
    add("--kept", action="store_true")
    add("--wide", type=int, default=1024)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.layout, options.length, options.each)
        length, kept = options.length, options.kept
        data: Dataset[Item]
        if options.layout == "own":
            data = Own(folder, length)
        elif options.layout == "archive":
            data = (Unpacked if kept else Archive)(folder, length)
        else:
            data = (KeptShards if kept else Shards)(folder, length, options.each)
        workers = options.workers
        loader = DataLoader(
            data, batch_size=16, shuffle=True, num_workers=workers, persistent_workers=workers > 0, drop_last=True
        )
        wide = options.wide
        net = nn.Sequential(nn.Flatten(), nn.Linear(3072, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU())
        shared.training.train(loader, nn.Sequential(net, nn.Linear(wide, 10)), options.steps)


if __name__ == "__main__":
    main()
