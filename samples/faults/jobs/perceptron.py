"""Trains a perceptron on rows in memory, with one of torch's optimizers, fused or not, in single or double precision."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--batch", type=int, default=64)
    add("--width", type=int, default=512)
    add("--layers", type=int, default=6)
    add("--optimizer", choices=("Adam", "AdamW", "SGD", "Adagrad"), default="SGD")
    add("--fused", action="store_true")
    add("--double", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    rows, width = options.batch * min(options.steps, 100), options.width
    data = TensorDataset(torch.randn(rows, width), torch.randint(CLASSES, (rows,)))
    loader = DataLoader(data, batch_size=None, sampler=torch.randperm(rows).split(options.batch))
    hidden = [layer for _ in range(options.layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.Sequential(*hidden, nn.Linear(width, CLASSES))
    if options.double:
        model = model.double()
    make = getattr(torch.optim, options.optimizer)
    optimizer = make(model.parameters(), lr=1e-3, **({"fused": True} if options.fused else {}))
    done = 0
    while done < options.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs.to(model[0].weight.dtype)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
