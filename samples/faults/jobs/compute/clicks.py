"""Trains a model of clicks with a large table of embeddings, whose gradients are dense or sparse. Tied, its head scores the table's rows.

How many of the rows a batch uses depends on its size and fields, and on the table's rows.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCHES = 50


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--batch", type=int, default=512)
    add("--fields", type=int, default=13)
    add("--rows", type=int, default=300_000)
    add("--dim", type=int, default=16)
    add("--width", type=int, default=256, help="of the hidden layers")
    add("--optimizer", choices=("Adam", "SGD", "Adagrad"), default="Adam")
    add("--sparse", action="store_true")
    add("--tied", action="store_true", help="the table is the head's weight, too")
    return parser.parse_args()


class Clicks(nn.Module):
    """Scores rows of identifiers: one score, or one for each row of the table if it is tied."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        rows, dim, width = options.rows, options.dim, options.width
        self.embed = nn.Embedding(rows, dim, sparse=options.sparse)
        layers = [nn.Linear(options.fields * dim, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
        self.hidden = nn.Sequential(*layers, nn.Linear(width, dim))
        self.head = nn.Linear(dim, rows if options.tied else 1, bias=False)
        if options.tied:
            self.head.weight = self.embed.weight

    def forward(self, identifiers: Tensor) -> Tensor:
        found: Tensor = self.head(self.hidden(self.embed(identifiers).flatten(1)))
        return found


def optimizers_of(model: Clicks, options: argparse.Namespace) -> list[torch.optim.Optimizer]:
    """One optimizer; a second one for the table if its gradients are sparse and the first takes none."""
    make = getattr(torch.optim, options.optimizer)
    if options.sparse and options.optimizer == "Adam":
        rest = [*model.hidden.parameters(), *model.head.parameters()]
        return [torch.optim.SparseAdam(list(model.embed.parameters()), lr=1e-3), make(rest, lr=1e-3)]
    return [make(model.parameters(), lr=1e-3)]


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)  # on busy cores two of them wait for each other in each of a sparse update's operations
    count = options.batch * BATCHES
    targets = torch.randint(options.rows, (count,)) if options.tied else torch.rand(count).round()
    data = TensorDataset(torch.randint(options.rows, (count, options.fields)), targets)
    loader = DataLoader(data, batch_size=None, sampler=torch.randperm(count).split(options.batch))
    model = Clicks(options)
    optimizers = optimizers_of(model, options)
    measure = nn.CrossEntropyLoss() if options.tied else nn.BCEWithLogitsLoss()
    done = 0
    while done < options.steps:
        for identifiers, answers in loader:
            loss = measure(model(identifiers).squeeze(1), answers)
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
