"""Trains a network and computes a part of the step a second time: for the accuracy, for another loss, or distances of all pairs."""

from __future__ import annotations

import argparse

import shared.group
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Network(nn.Module):
    def __init__(self, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        inner = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
        self.encoder = nn.Sequential(*inner, *([nn.Dropout(dropout)] if dropout else []))
        self.head = nn.Linear(width, 10)
        self.decoder = nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.head(self.encoder(inputs))
        return logits

    def both(self, inputs: Tensor, *, once: bool) -> tuple[Tensor, Tensor]:
        """The logits, and the inputs as the decoder restores them."""
        hidden = self.encoder(inputs)
        logits = self.head(hidden)
        if once:
            return logits, self.decoder(hidden)
        again = self.encoder(inputs)
        return logits, self.decoder(again)


def accuracy(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(1) == labels).float().mean().item()


def spread(hidden: Tensor, *, once: bool) -> tuple[Tensor, float]:
    """A loss that keeps outputs together, and how far the farthest ones are apart."""
    distances = torch.cdist(hidden, hidden)
    loss = distances.mean()
    if once:
        return loss, distances.amax().item()
    return loss, torch.cdist(hidden, hidden).amax().item()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=512)
    add("--depth", type=int, default=4)
    add("--dropout", type=float, default=0.0)
    add("--for", dest="purpose", choices=("accuracy", "loss", "distances"), default="accuracy")
    add("--once", action="store_true", help="keep the first result")
    return parser.parse_args()


def main() -> None:
    options = parse()
    shared.group.join()
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(8192, options.width), torch.randint(0, 10, (8192,)))
    batches = BatchSampler(RandomSampler(data), options.batch, drop_last=True)
    loader = DataLoader(data, batch_size=None, sampler=batches)
    model = Network(options.width, options.depth, options.dropout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done, told = 0, 0.0
    while done < options.steps:
        for inputs, labels in loader:
            if options.purpose == "loss":
                outputs, restored = model.both(inputs, once=options.once)
                loss = nn.functional.cross_entropy(outputs, labels) + nn.functional.mse_loss(restored, inputs)
            elif options.purpose == "distances":
                hidden = model.encoder(inputs)
                together, farthest = spread(hidden, once=options.once)
                loss = nn.functional.cross_entropy(model.head(hidden), labels) + 0.01 * together
                told += farthest
            else:
                outputs = model(inputs)
                loss = nn.functional.cross_entropy(outputs, labels)
                told += accuracy(outputs, labels) if options.once else accuracy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % 50 == 0:
                print(f"step {done}: loss {loss.item():.3f}, {options.purpose} {told / done:.3f}", flush=True)
            if done == options.steps:
                break


if __name__ == "__main__":
    main()
