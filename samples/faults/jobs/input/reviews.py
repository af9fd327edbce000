"""Trains on the lines of a text file: each item reads the file up to its line, or seeks to where the line begins."""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path

import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

WORDS, LENGTH = 2000, 24


class Reviews(Dataset[tuple[Tensor, int]]):
    def __init__(self, path: Path, offsets: list[int] | None, lines: int) -> None:
        self.path = path
        self.offsets = offsets
        self.lines = lines

    def __len__(self) -> int:
        return self.lines

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        line = self.line(index)
        return torch.tensor([int(word) for word in line.split()]), index % 2

    def line(self, index: int) -> str:
        with self.path.open() as file:
            if self.offsets is not None:
                file.seek(self.offsets[index])
                return file.readline()
            for number, text in enumerate(file):
                if number == index:
                    return text
        raise IndexError(index)


def write(path: Path, lines: int) -> list[int]:
    """Where each line begins, in bytes."""
    drawn, offsets = random.Random(0), []
    with path.open("w") as file:
        for _ in range(lines):
            offsets.append(file.tell())
            file.write(" ".join(str(drawn.randrange(WORDS)) for _ in range(LENGTH)) + "\n")
    return offsets


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=32)
    add("--lines", type=int, default=20_000)
    add("--wide", type=int, default=1024)
    add("--workers", type=int, default=0)
    add("--seek", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reviews.txt"
        offsets = write(path, options.lines)
        reviews = Reviews(path, offsets if options.seek else None, options.lines)
        alive = options.workers > 0
        loader = DataLoader(reviews, options.batch, True, num_workers=options.workers, persistent_workers=alive)
        words = nn.EmbeddingBag(WORDS, options.wide, mode="mean")
        net = nn.Sequential(words, nn.Linear(options.wide, options.wide), nn.ReLU(), nn.Linear(options.wide, 2))
        shared.training.train(loader, net, options.steps)


if __name__ == "__main__":
    main()
