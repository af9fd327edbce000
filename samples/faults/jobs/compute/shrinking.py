"""Trains a perceptron some of whose inputs fall silent: the momentum of their weights decays until its numbers are denormal."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
BATCHES = 50
MOMENTUM = 0.9  # of 1e-4, 750 steps later, 5e-39 are left


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=1900)
    add("--batch", type=int, default=16)
    add("--inputs", type=int, default=2048)
    add("--width", type=int, default=512)
    add("--layers", type=int, default=2)
    add("--silent", type=float, default=0.5, help="share of the inputs that fall silent")
    add("--silent-from", type=int, default=50, help="step")
    add("--noise", type=float, default=0.0, help="what is left of them")
    add(
        "--begin-with",
        type=float,
        default=0.0,
        help="the size of the momentum of silent inputs' weights at the first step",
    )
    add("--flush", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.set_flush_denormal(options.flush)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows, silent = options.batch * BATCHES, int(options.silent * options.inputs)
    data = TensorDataset(torch.randn(rows, options.inputs), torch.randint(CLASSES, (rows,)))
    loader = DataLoader(data, batch_size=None, sampler=torch.randperm(rows).split(options.batch))
    hidden = [layer for _ in range(options.layers) for layer in (nn.Linear(options.width, options.width), nn.ReLU())]
    first = nn.Linear(options.inputs, options.width)
    model = nn.Sequential(first, nn.ReLU(), *hidden, nn.Linear(options.width, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=MOMENTUM)
    done = 0
    while done < options.steps:
        for inputs, targets in loader:
            if done >= options.silent_from:
                inputs[:, :silent] *= options.noise
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not done and options.begin_with:
                optimizer.state[first.weight]["momentum_buffer"][:, :silent] = options.begin_with
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
