"""The job that `overhead.py` times: prints the seconds of its steps, so that start-up and shutdown do not count."""

from __future__ import annotations

import argparse
import json
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        self.shape, self.length = shape, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(self.shape), index % 10


def model_of(name: str) -> tuple[nn.Module, tuple[int, ...], int]:
    """(model, shape of a sample, batch size)"""
    if name == "resnet50":
        from torchvision.models import resnet50

        return resnet50(num_classes=10), (3, 64, 64), 8
    width = int(name.removeprefix("mlp"))
    return (
        nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)),
        (64,),
        16,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="mlp256")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, shape, batch = model_of(options.model)
    data = DataLoader(Rows(shape, batch * options.steps), batch_size=batch, num_workers=options.workers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    clock = time.perf_counter_ns
    took, last = [], clock()
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        now = clock()
        took.append(now - last)
        last = now
    print(json.dumps(took[len(took) // 10 :]))


if __name__ == "__main__":
    main()
