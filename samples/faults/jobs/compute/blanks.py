"""Trains a small transformer to fill in blanks: logits of all positions or of the blanks alone, chosen before or afterwards."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

IGNORED, BLANK = -100, 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--words", type=int, default=6000)
    add("--width", type=int, default=96)
    add("--layers", type=int, default=2)
    add("--batch", type=int, default=16)
    add("--length", type=int, default=64)
    add("--blanks", type=float, default=0.15, help="share of the positions")
    add("--logits", choices=("all", "blanks", "afterwards"), default="all")
    add(
        "--hardest", type=int, default=0, help="positions of a batch that are trained on, those with the largest losses"
    )
    return parser.parse_args()


class Filler(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.words = nn.Embedding(options.words, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.turn = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, options.words)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.layers(self.words(ids))
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        found: Tensor = self.head(self.turn(hidden))
        return found


def loss_of(net: Filler, ids: Tensor, labels: Tensor, options: argparse.Namespace) -> Tensor:
    hidden = net(ids)
    if options.logits == "blanks":
        hidden, labels = hidden[labels != IGNORED], labels[labels != IGNORED]
    logits = net.logits(hidden)
    if options.logits == "afterwards":
        logits, labels = logits[labels != IGNORED], labels[labels != IGNORED]
    logits = logits.flatten(0, -2)
    if options.hardest:
        each = cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="none")
        return each.topk(options.hardest).values.mean()
    return cross_entropy(logits, labels.flatten(), ignore_index=IGNORED)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    ids = torch.randint(1, options.words, (40 * options.batch, options.length))
    blank = torch.rand(ids.shape) < options.blanks
    data = TensorDataset(ids.masked_fill(blank, BLANK), ids.masked_fill(~blank, IGNORED))
    net = Filler(options)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    step = 0
    while step < options.steps:
        for x, labels in DataLoader(data, batch_size=options.batch, shuffle=True):
            loss = loss_of(net, x, labels, options)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
