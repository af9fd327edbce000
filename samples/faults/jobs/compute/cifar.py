"""Trains a torchvision net on 32x32 pictures held in memory, in one process."""

from __future__ import annotations

import argparse

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--model", default="resnet18")
    add("--steps", type=int, default=80)
    add("--batch", type=int, default=16)
    add("--workers", type=int, default=0)
    add("--pictures", type=int, default=2048)
    add("--threads", type=int, default=0)
    add("--compile", action="store_true")
    add("--head-only", action="store_true", help="the optimizer gets the last layer alone")
    add("--frozen", action="store_true", help="the other layers need no gradients")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    pictures = TensorDataset(torch.rand(options.pictures, 3, 32, 32), torch.randint(10, (options.pictures,)))
    data = DataLoader(pictures, options.batch, shuffle=True, num_workers=options.workers, drop_last=True)
    model = torchvision.models.get_model(options.model, num_classes=10)
    if options.compile:
        model = torch.compile(model)
    if options.frozen:
        model.requires_grad_(False)
        model.fc.requires_grad_(True)
    updated = (model.fc if options.head_only else model).parameters()
    optimizer = torch.optim.SGD(updated, lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    step = 0
    while step < options.steps:
        for x, y in data:
            optimizer.zero_grad(set_to_none=True)
            criterion(model(x), y).backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break


if __name__ == "__main__":
    main()
