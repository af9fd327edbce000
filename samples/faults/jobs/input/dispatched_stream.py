"""Trains on a stream of records on several ranks: rank 0 loads the batches of all through accelerate, or each rank reads its own."""

from __future__ import annotations

import argparse
import os
import zlib
from collections.abc import Iterator
from itertools import islice

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

VALUES, KINDS = 4096, 40
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Records(IterableDataset[tuple[Tensor, int]]):
    """Compressed records, of which `rounds` times as much is decompressed as is used. `own`: only this rank's."""

    def __init__(self, rounds: int, own: bool) -> None:
        made = torch.Generator().manual_seed(0)
        rows = torch.randint(0, 64, (48, VALUES * 8), generator=made, dtype=torch.uint8)
        self.packed = [zlib.compress(row.numpy().tobytes()) for row in rows]
        self.rounds, self.own = rounds, own

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        numbers = iter(range(200_000))
        for number in islice(numbers, RANK, None, WORLD) if self.own else numbers:
            unpacked = b""
            for each in range(self.rounds):
                unpacked = zlib.decompress(self.packed[(number + each) % len(self.packed)])
            values = torch.frombuffer(bytearray(unpacked[:VALUES]), dtype=torch.uint8)
            yield values.float().div_(64), number % KINDS


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--rounds", type=int, default=2, help="of decompressing for each record")
    add("--width", type=int, default=48, help="channels of the convolutions")
    add(
        "--own",
        action="store_true",
        help="each rank reads its own records, in a loader that accelerate does not prepare",
    )
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(Records(options.rounds, options.own), batch_size=16)
    model: nn.Module = nn.Sequential(
        nn.Unflatten(1, (1, VALUES)),
        nn.Conv1d(1, options.width, 9, stride=4), nn.ReLU(),
        nn.Conv1d(options.width, options.width, 9, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(4 * options.width, KINDS),
    )  # fmt: skip
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if not options.own:
        loader = accelerator.prepare(loader)
    for _, (values, kinds) in zip(range(options.steps), loader, strict=False):
        loss = nn.functional.cross_entropy(model(values), kinds)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.end_training()


if __name__ == "__main__":
    main()
