"""Trains on rows held in memory as tensors, fetched one by one or as whole batches."""

from __future__ import annotations

import argparse

import torch
from shared.extra_work import extra_work
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Rows(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, samples: int, width: int) -> None:
        self.rows = torch.randn(samples, width)
        self.targets = torch.randint(10, (samples,))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: int | list[int]) -> tuple[Tensor, Tensor]:
        return self.rows[at], self.targets[at]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=1500)
    add("--samples", type=int, default=40_000)
    add("--width", type=int, default=256)
    add("--batch", type=int, default=512)
    add("--compute", type=float, default=0.0, help="ms a step, beside the model's own")
    add("--whole", action="store_true", help="fetch whole batches")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Rows(options.samples, options.width)
    if options.whole:
        batches = BatchSampler(RandomSampler(data), options.batch, drop_last=False)
        loader = DataLoader(data, batch_size=None, sampler=batches)
    else:
        loader = DataLoader(data, batch_size=options.batch, shuffle=True)
    model = nn.Sequential(nn.Linear(options.width, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for rows, targets in loader:
            loss = nn.functional.cross_entropy(model(rows), targets)
            if options.compute:
                loss = loss + extra_work(options.compute)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
