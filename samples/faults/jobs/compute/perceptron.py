"""Trains a perceptron on rows in memory: optimizer fused or not, in double precision, checkpointed, updated in part, traced."""

from __future__ import annotations

import argparse
import contextlib
import tracemalloc

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
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
    add("--groups", choices=("one", "each"), default="one", help="parameter groups: one, or one for each tensor")
    add("--double", action="store_true")
    add("--autocast", choices=("float16", "bfloat16"), help="compute in half precision")
    add("--traced", type=int, default=0, help="frames of the traceback that tracemalloc keeps of each allocation")
    add("--checkpointed", type=int, default=0, help="hidden layers that keep no activations")
    add("--updated", default="all", help="what the optimizer gets: all, biases, or the head and so many last layers")
    add("--frozen", action="store_true", help="the other parameters need no gradients")
    return parser.parse_args()


class Perceptron(nn.Module):
    def __init__(self, width: int, layers: int, checkpointed: int) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers))
        self.head = nn.Linear(width, CLASSES)
        self.checkpointed = checkpointed

    def forward(self, rows: Tensor) -> Tensor:
        for number, layer in enumerate(self.hidden):
            rows = checkpoint(layer, rows, use_reentrant=False) if number < self.checkpointed else layer(rows)
        found: Tensor = self.head(rows)
        return found


def chosen(model: Perceptron, which: str) -> list[nn.Parameter]:
    if which == "all":
        return list(model.parameters())
    if which == "biases":
        return [p for p in model.parameters() if p.dim() == 1]
    layers = model.hidden[len(model.hidden) - int(which) :]
    return [*layers.parameters(), *model.head.parameters()]


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    rows, width = options.batch * min(options.steps, 100), options.width
    data = TensorDataset(torch.randn(rows, width), torch.randint(CLASSES, (rows,)))
    loader = DataLoader(data, batch_size=None, sampler=torch.randperm(rows).split(options.batch))
    model = Perceptron(width, options.layers, options.checkpointed)
    if options.double:
        model = model.double()
    make = getattr(torch.optim, options.optimizer)
    updated = chosen(model, options.updated)
    if options.frozen:
        model.requires_grad_(False)
        for parameter in updated:
            parameter.requires_grad_(True)
    groups = [{"params": [parameter]} for parameter in updated] if options.groups == "each" else updated
    optimizer = make(groups, lr=1e-3, **({"fused": True} if options.fused else {}))
    if options.traced:  # not before: an optimizer imports much
        tracemalloc.start(options.traced)
    half = getattr(torch, options.autocast or "float32")
    autocast = torch.autocast("cpu", half) if options.autocast else contextlib.nullcontext()
    done = 0
    while done < options.steps:
        for inputs, targets in loader:
            with autocast:
                loss = nn.functional.cross_entropy(model(inputs.to(model.head.weight.dtype)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
