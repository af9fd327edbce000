"""Trains a small convolutional net with pooling after each pair of layers, as tutorials have it."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=700)
    add("--batch", type=int, default=32)
    add("--size", type=int, default=32, help="of an image")
    add("--width", type=int, default=32, help="channels of the first layer")
    add("--strided", action="store_true", help="the convolutions halve the images, and nothing is pooled")
    add("--channels-last", action="store_true")
    return parser.parse_args()


def layers(inputs: int, outputs: int, *, strided: bool) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, 3, stride=2 if strided else 1, padding=1)
    return nn.Sequential(convolution, nn.ReLU(), *([] if strided else [nn.MaxPool2d(2)]))


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images = TensorDataset(torch.rand(1024, 3, options.size, options.size), torch.randint(CLASSES, (1024,)))
    loader = DataLoader(images, batch_size=options.batch, shuffle=True)
    width, strided = options.width, options.strided
    net = nn.Sequential(
        layers(3, width, strided=strided),
        layers(width, 2 * width, strided=strided),
        layers(2 * width, 2 * width, strided=strided),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )
    if options.channels_last:
        net = net.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(net(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
