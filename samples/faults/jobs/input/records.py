"""Trains on records held as Python objects or as arrays, which workers read."""

from __future__ import annotations

import argparse
import gc

import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

Box = list[float]
Sample = tuple[Box | list[Box], int]


class Records(Dataset[Sample]):
    """A dict for each record: reading it changes the reference counts of all that is in it."""

    def __init__(self, count: int, boxes: int = 0, collect_every: int = 0) -> None:
        self.boxes, self.collect_every = boxes, collect_every
        self.records = [{"box": [1.5 * n, 2.5, 3.5 + n, 4.5], "label": n % 10} for n in range(count)]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, at: int) -> Sample:
        record = self.records[at]
        if self.collect_every and at % self.collect_every == 0:
            gc.collect()
        if self.boxes:
            return [list(record["box"]) for _ in range(self.boxes)], record["label"]
        return record["box"], record["label"]


class Arrays(Dataset[Sample]):
    def __init__(self, count: int) -> None:
        numbers = np.arange(count)
        self.boxes = np.stack([1.5 * numbers, np.full(count, 2.5), 3.5 + numbers, np.full(count, 4.5)], axis=1)
        self.labels = numbers % 10

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, at: int) -> Sample:
        return self.boxes[at].tolist(), int(self.labels[at])


def collate(samples: list[Sample]) -> tuple[Tensor, Tensor]:
    boxes, labels = zip(*samples, strict=True)
    if isinstance(boxes[0][0], list):
        boxes = [max(each) for each in boxes]  # one of a sample's lists goes into the batch
    return torch.tensor(boxes) / 1e6, torch.tensor(labels)


def freeze(worker: int) -> None:
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=3000)
    add("--records", type=int, default=600_000)
    add("--batch", type=int, default=2000)
    add("--workers", type=int, default=2)
    add("--boxes", type=int, default=0, help="new lists of each sample")
    add("--collect-every", type=int, default=0, help="samples between calls of the garbage collector; 0: none")
    add("--freeze", action="store_true", help="what a worker has at its start is not collected")
    add("--arrays", action="store_true", help="instead of Python objects")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Arrays(options.records) if options.arrays else Records(options.records, options.boxes, options.collect_every)
    loader = DataLoader(
        data,
        batch_size=options.batch,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
        collate_fn=collate,
        multiprocessing_context="fork" if options.workers else None,
        worker_init_fn=freeze if options.freeze else None,
    )
    model = nn.Sequential(nn.Linear(4, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    shared.training.train(loader, model, options.steps)


if __name__ == "__main__":
    main()
