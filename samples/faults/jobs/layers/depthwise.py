"""Trains small nets whose convolutions take each channel by itself: on images, and along sequences with long filters."""

from __future__ import annotations

import argparse

import torch
from torch import nn

CLASSES = 8


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--of", choices=("images", "sequences"), default="images")
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=8)
    add("--size", type=int, default=32, help="of an image, or numbers of a sequence")
    add("--width", type=int, default=48)
    add("--kernel", type=int, default=7)
    add("--layers", type=int, default=3)
    add("--wider", type=int, default=2, help="times the width inside of a block")
    add("--better", action="store_true", help="images in channels-last format, sequences by Fourier transforms")
    return parser.parse_args()


class Block(nn.Module):
    """A depthwise convolution, and layers for each pixel."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, inside = options.width, options.wider * options.width
        self.around = nn.Conv2d(width, width, options.kernel, padding=options.kernel // 2, groups=width)
        self.norm = nn.BatchNorm2d(width)
        self.wide, self.narrow = nn.Conv2d(width, inside, 1), nn.Conv2d(inside, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.narrow(torch.relu(self.wide(self.norm(self.around(x)))))
        return out


class Filter(nn.Module):
    """A learned filter for each channel that sees what came before."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, self.better = options.width, options.better
        self.filter = nn.Conv1d(width, width, options.kernel, groups=width, bias=False)
        self.mix = nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length, kernel = x.shape[-1], self.filter.kernel_size[0]
        padded = nn.functional.pad(x, (kernel - 1, 0))
        if self.better:
            size = 1 << (length + 2 * kernel - 3).bit_length()
            products = torch.fft.rfft(padded, n=size) * torch.fft.rfft(self.filter.weight.squeeze(1).flip(-1), n=size)
            filtered = torch.fft.irfft(products, n=size)[..., kernel - 1 : kernel - 1 + length]
        else:
            filtered = self.filter(padded)
        return x + torch.relu(torch.as_tensor(self.mix(filtered)))


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    images, width = options.of == "images", options.width
    first = nn.Conv2d(3, width, 3, padding=1) if images else nn.Conv1d(1, width, 1)
    layers = ((Block if images else Filter)(options) for _ in range(options.layers))
    pool = nn.AdaptiveAvgPool2d(1) if images else nn.AdaptiveAvgPool1d(1)
    model = nn.Sequential(first, *layers, pool, nn.Flatten(), nn.Linear(width, CLASSES))
    if images and options.better:
        model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    shape = (options.batch, 3, options.size, options.size) if images else (options.batch, 1, options.size)
    for _ in range(options.steps):
        loss = nn.functional.cross_entropy(model(torch.randn(shape)), torch.randint(CLASSES, (options.batch,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
