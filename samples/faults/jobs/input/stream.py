"""Trains on records that come out of compressed files in a stream, collated by hand; gradients of several batches make a step."""

from __future__ import annotations

import argparse
import io
import random
import zlib
from collections.abc import Iterator

import numpy as np
import shared.group
import shared.models
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Records(IterableDataset):
    """Unpacks each record `passes` times, as for formats with nested compression; yields records from a full shuffle buffer."""

    def __init__(self, count: int, passes: int, shuffle: int = 0) -> None:
        rng = np.random.default_rng(0)
        self.count, self.passes, self.shuffle = count, passes, shuffle
        self.packed = [self._pack(rng.integers(0, 255, (3, 64, 64), dtype=np.uint8) // 32) for _ in range(32)]

    @staticmethod
    def _pack(picture: np.ndarray) -> bytes:
        buffer = io.BytesIO()
        np.save(buffer, picture)
        return zlib.compress(buffer.getvalue(), 9)

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        waiting: list[tuple[np.ndarray, int]] = []
        for record in self._unpacked():
            waiting.append(record)
            if len(waiting) > self.shuffle:
                yield waiting.pop(random.randrange(len(waiting)))
        random.shuffle(waiting)
        yield from waiting

    def _unpacked(self) -> Iterator[tuple[np.ndarray, int]]:
        info = get_worker_info()
        first, every = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, self.count, every):
            for _ in range(self.passes):
                picture = np.load(io.BytesIO(zlib.decompress(self.packed[number % 32])))
            yield picture, number % 10


class Batches(IterableDataset):
    """Records that the stream itself yields in batches."""

    def __init__(self, records: Records, size: int) -> None:
        self.records, self.size = records, size

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        waiting: list[tuple[np.ndarray, int]] = []
        for record in self.records:
            waiting.append(record)
            if len(waiting) == self.size:
                yield collate(waiting)
                waiting.clear()


def collate(samples: list[tuple[np.ndarray, int]]) -> dict[str, Tensor]:
    pictures = torch.from_numpy(np.stack([picture for picture, _ in samples])).float().div_(8)
    return {"pictures": nn.functional.avg_pool2d(pictures, 2), "labels": torch.tensor([label for _, label in samples])}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--accumulate", type=int, default=1)
    add("--workers", type=int, default=0)
    add("--persistent", action="store_true")
    add("--epochs", type=int, default=1, help="that the steps are spread over")
    add("--in-batches", action="store_true", help="the data set makes the batches, the loader none")
    add("--shuffle", type=int, default=0, metavar="RECORDS", help="in the buffer before the first one comes out")
    add("--passes", type=int, default=1)
    add("--width", type=int, default=24)
    add("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    count = options.steps * options.accumulate * options.batch // options.epochs
    records = Records(count, options.passes, options.shuffle)
    workers = {"num_workers": options.workers, "persistent_workers": options.persistent}
    if options.in_batches:
        data = DataLoader(Batches(records, options.batch), batch_size=None, **workers)
    else:
        data = DataLoader(records, batch_size=options.batch, collate_fn=collate, **workers)
    model = shared.models.small_cnn(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = (batch for _ in range(options.epochs) for batch in data)
    for number, batch in enumerate(batches, start=1):
        loss = nn.functional.cross_entropy(model(batch["pictures"]), batch["labels"])
        (loss / options.accumulate).backward()
        if number % options.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
    shared.group.leave()


if __name__ == "__main__":
    main()
