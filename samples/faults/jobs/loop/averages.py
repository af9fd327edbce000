"""Trains a classifier and keeps an average of its weights, updated after each step tensor by tensor or with all of them at once."""

from __future__ import annotations

import argparse
import copy

import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

DECAY = 0.999


def averaged(average: nn.Module, model: nn.Module) -> None:
    """As many scripts have it: a new tensor for each product and each sum."""
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.data = DECAY * kept.data + (1.0 - DECAY) * new.data


def averaged_in_place(average: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.mul_(DECAY).add_(new, alpha=1.0 - DECAY)


def averaged_at_once(average: nn.Module, model: nn.Module) -> None:
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1.0 - DECAY)


AVERAGES = {"by-tensor": averaged, "in-place": averaged_in_place, "at-once": averaged_at_once}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--model", default="resnet18", help="of torchvision")
    add("--average", choices=sorted(AVERAGES), default="by-tensor")
    add("--batch", type=int, default=8)
    add("--size", type=int, default=32)
    add("--steps", type=int, default=200)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(512, 3, options.size, options.size), torch.randint(10, (512,)))
    loader = DataLoader(data, batch_size=options.batch, shuffle=True, drop_last=True)
    model = torchvision.models.get_model(options.model, num_classes=10)
    average, update = copy.deepcopy(model), AVERAGES[options.average]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for pictures, labels in loader:
            loss = nn.functional.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update(average, model)
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
