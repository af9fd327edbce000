"""Trains a small net whose outputs or losses are computed one after the other in a Python loop, or all at once."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WIDTH, SIDE = 96, 24
PENALTY = 1e-4


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--of", choices=("columns", "samples", "classes", "heads", "scales", "parameters"), required=True)
    add("--outputs", type=int, default=40, help="columns, classes, heads, or layers for a penalty of their weights")
    add("--batch", type=int, default=32)
    add("--at-once", action="store_true")
    return parser.parse_args()


class Tagger(nn.Module):
    """Labels for each picture, from a common trunk: by one layer, or by a head for each label."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(4),
            nn.Flatten(),
            nn.Linear(512, WIDTH),
            nn.ReLU(),
        )
        several = options.of == "heads" and not options.at_once
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(options.outputs)) if several else None
        self.labels = nn.Linear(WIDTH, options.outputs)

    def forward(self, pictures: Tensor) -> Tensor:
        features = self.trunk(pictures)
        if self.heads is not None:
            return torch.cat([head(features) for head in self.heads], dim=1)
        return self.labels(features)


def deep(options: argparse.Namespace) -> nn.Module:
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.ReLU()) for _ in range(options.outputs)]
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, WIDTH), *layers, nn.Linear(WIDTH, options.outputs))


class Segmenter(nn.Module):
    """A class for each place of a picture."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.scales = (1.0, 0.75, 0.5) if options.of == "scales" else (1.0,)
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, options.outputs, 1))

    def forward(self, pictures: Tensor) -> Tensor:
        seen = []
        for scale in self.scales:
            smaller = functional.interpolate(pictures, scale_factor=scale, mode="bilinear")
            seen.append(functional.interpolate(self.body(smaller), size=(SIDE, SIDE), mode="bilinear"))
        return torch.stack(seen).mean(0)


def loss_of_columns(logits: Tensor, targets: Tensor, options: argparse.Namespace) -> Tensor:
    if options.at_once:
        return functional.binary_cross_entropy_with_logits(logits, targets)
    total = logits.new_zeros(())
    for column in range(targets.size(1)):
        total = total + functional.binary_cross_entropy_with_logits(logits[:, column], targets[:, column])
    return total / targets.size(1)


class SampleLoss(nn.Module):
    """The cross entropy of each picture's most likely label, weighed by how many labels it has."""

    def __init__(self, *, at_once: bool) -> None:
        super().__init__()
        self.at_once = at_once
        self.criterion = nn.CrossEntropyLoss(reduction="none" if at_once else "mean")

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        if self.at_once:
            return (targets.mean(1) * self.criterion(logits, targets.argmax(1))).mean()
        losses = []
        for scores, labels in zip(logits, targets, strict=True):
            losses.append(labels.mean() * self.criterion(scores.unsqueeze(0), labels.argmax().unsqueeze(0)))
        return torch.stack(losses).mean()


def overlap(scores: Tensor, wanted: Tensor) -> Tensor:
    common = (scores * wanted).sum()
    return 1 - 2 * common / (scores.sum() + wanted.sum() + 1)


def loss_of_classes(logits: Tensor, targets: Tensor, options: argparse.Namespace) -> Tensor:
    scores = logits.softmax(1)
    if options.at_once:
        common = (scores * targets).sum((0, 2, 3))
        return (1 - 2 * common / (scores.sum((0, 2, 3)) + targets.sum((0, 2, 3)) + 1)).mean()
    return sum(overlap(scores[:, k], targets[:, k]) for k in range(options.outputs)) / options.outputs


def penalty(net: nn.Module) -> Tensor:
    total = torch.zeros(())
    for weights in net.parameters():
        total = total + weights.pow(2).sum()
    return PENALTY * total


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    places = options.of in ("classes", "scales")
    net = Segmenter(options) if places else deep(options) if options.of == "parameters" else Tagger(options)
    samples = SampleLoss(at_once=options.at_once)
    penalised = options.of == "parameters" and not options.at_once
    decay = 2 * PENALTY if options.of == "parameters" and options.at_once else 0.0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, weight_decay=decay)
    pictures = torch.rand(1024, 3, SIDE, SIDE)
    labels = (torch.rand(1024, options.outputs, *((SIDE, SIDE) if places else ())) < 0.1).float()
    loader = DataLoader(TensorDataset(pictures, labels), batch_size=options.batch, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for batch, targets in loader:
            logits = net(batch)
            if options.of == "samples":
                loss = samples(logits, targets)
            elif options.of == "classes":
                loss = loss_of_classes(logits, targets, options)
            elif options.of == "scales":
                loss = functional.binary_cross_entropy_with_logits(logits, targets)
            else:
                loss = loss_of_columns(logits, targets, options) if options.of == "columns" else logits.square().mean()
            if penalised:
                loss = loss + penalty(net)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
