"""Trains small models whose linear operations follow one another: attention without a softmax, predictions that are averaged, a
segmentation head on an enlarged image.
"""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional

CLASSES = 8


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--of", choices=("words", "votes", "pixels"), default="words")
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=16)
    add("--long", type=int, default=512, help="words of a text, or pixels of an image's side")
    add("--width", type=int, default=64)
    add("--classes", type=int, default=CLASSES, help="of a vote")
    add("--layers", type=int, default=1)
    add("--small-first", action="store_true", help="the order with less work")
    return parser.parse_args()


class LinearAttention(nn.Module):
    """Attention whose weights are products of positive features."""

    def __init__(self, width: int, *, small_first: bool) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.small_first = small_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).chunk(3, dim=-1)
        q, k = functional.elu(q) + 1, functional.elu(k) + 1
        norm = (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
        if self.small_first:
            mixed = q @ (k.transpose(1, 2) @ v)
        else:
            weights = q @ k.transpose(1, 2)
            mixed = weights @ v
        return x + self.out(mixed / norm)


class Texts(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        attention = (LinearAttention(options.width, small_first=options.small_first) for _ in range(options.layers))
        self.layers, self.head = nn.Sequential(*attention), nn.Linear(options.width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.layers(x).mean(1))
        return out


class Votes(nn.Module):
    """Every word votes for a class."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        body = (nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(options.layers))
        self.body, self.vote = nn.Sequential(*body), nn.Linear(width, options.classes)
        self.small_first = options.small_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = self.body(x)
        if self.small_first:
            return torch.as_tensor(self.vote(words.mean(1)))
        votes = self.vote(words)
        return torch.as_tensor(votes.mean(dim=1))


class Segmenter(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        body = (nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(options.layers))
        self.stem, self.body = nn.Conv2d(3, width, 4, stride=4), nn.Sequential(*body)
        self.classify, self.small_first = nn.Conv2d(width, CLASSES, 1), options.small_first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(self.stem(x))
        if self.small_first:
            return functional.interpolate(self.classify(features), scale_factor=4, mode="bilinear")
        features = functional.interpolate(features, scale_factor=4, mode="bilinear")
        return torch.as_tensor(self.classify(features))


MODELS = {"words": Texts, "votes": Votes, "pixels": Segmenter}


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    model = MODELS[options.of](options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    long, pixels = options.long, options.of == "pixels"
    shape = (options.batch, 3, long, long) if pixels else (options.batch, long, options.width)
    of_targets = (options.batch, long, long) if pixels else (options.batch,)
    for _ in range(options.steps):
        out = model(torch.randn(shape))
        loss = functional.cross_entropy(out, torch.randint(CLASSES, of_targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
