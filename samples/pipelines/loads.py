"""Loads the batches of `samples/train.py` without training and prints images/s. With --files-only it reads files without decoding.

    python -m samples.pipelines.loads [--files-only] ARGUMENTS OF samples/train.py

The first fifth of --steps batches is ignored: workers are starting and filling the queue.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.datasets import ImageFolder

from samples.train import World, make_datasets, make_loaders, parse_arguments


class Files(Dataset[bytes]):
    """The undecoded files of an ImageFolder, as bytes."""

    def __init__(self, pictures: ImageFolder) -> None:
        self.paths = [path for path, _ in pictures.samples]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> bytes:
        return Path(self.paths[index]).read_bytes()


def batches(data: DataLoader[Any]) -> Iterator[Any]:
    """Yields batches, epoch after epoch."""
    while True:
        yield from data


def rate(data: DataLoader[Any], steps: int) -> float:
    """Samples per second of the last four fifths of `steps` batches."""
    size, found, skipped = data.batch_size or 1, batches(data), max(1, steps // 5)
    for _ in range(skipped):
        next(found)
    began = time.perf_counter()
    for _ in range(steps - skipped):
        next(found)
    return size * (steps - skipped) / (time.perf_counter() - began)


def main(argv: Sequence[str]) -> None:
    files_only = "--files-only" in argv
    args = parse_arguments([word for word in argv if word != "--files-only"])
    torch.set_num_threads(1)
    pictures, validation, _ = make_datasets(args)
    world = World(0, 0, 1, torch.device("cpu"))
    data: DataLoader[Any] = make_loaders(args, world, pictures, validation)[0]
    if files_only:
        assert isinstance(pictures, ImageFolder)
        data = DataLoader(
            Files(pictures), args.batch_size, shuffle=True, num_workers=args.workers, collate_fn=len, drop_last=True
        )
    print(f"{rate(data, args.steps or 50):.1f}")


if __name__ == "__main__":
    main(sys.argv[1:])
