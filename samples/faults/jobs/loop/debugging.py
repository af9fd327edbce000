"""Trains a perceptron whose loop logs the norms of its gradients for debugging, as text made at once or by the logger if it is read."""

from __future__ import annotations

import argparse
import logging

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("training")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--width", type=int, default=1024)
    add("--layers", type=int, default=6)
    add("--batch", type=int, default=128)
    add("--lazily", action="store_true", help="leave the formatting to the logger")
    add("--sizes-alone", action="store_true", help="text of numbers instead of tensors")
    return parser.parse_args()


def note_gradients(net: nn.Module, options: argparse.Namespace) -> None:
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        norms = parameter.grad.flatten(1).norm(dim=1) if parameter.dim() > 1 else parameter.grad
        if options.sizes_alone:
            logger.debug(f"{name}: {len(norms)}")
        elif options.lazily:
            logger.debug("%s: %s", name, norms)
        else:
            logger.debug(f"{name}: {norms}")


def main() -> None:
    options = parse()
    logging.basicConfig(level=logging.INFO)
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(options.layers):
        parts += [nn.Linear(options.width, options.width), nn.ReLU()]
    net = nn.Sequential(*parts, nn.Linear(options.width, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rows = TensorDataset(torch.randn(4096, options.width), torch.randint(10, (4096,)))
    loader = DataLoader(rows, batch_size=options.batch, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for inputs, classes in loader:
            optimizer.zero_grad()
            cross_entropy(net(inputs), classes).backward()
            note_gradients(net, options)
            optimizer.step()
            step += 1
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
