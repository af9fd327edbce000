"""Trains a small transformer on random words, with attention computed in parts or by one operation."""

from __future__ import annotations

import argparse
import math

import shared.training
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

WORDS = 1000


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, kind: str, drop: float) -> None:
        super().__init__()
        self.heads, self.kind, self.drop = heads, kind, drop
        self.into = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        samples, length, width = x.shape
        split = self.into(x).view(samples, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        if self.kind == "fused":
            found = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.drop)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            weights = functional.softmax(scores, dim=-1)
            found = functional.dropout(weights, self.drop) @ v
        joined: Tensor = self.out(found.transpose(1, 2).reshape(samples, length, width))
        return joined


class TorchAttention(nn.Module):
    """`nn.MultiheadAttention`, which returns its weights unless told otherwise."""

    def __init__(self, width: int, heads: int, *, weights: bool) -> None:
        super().__init__()
        self.attention, self.weights = nn.MultiheadAttention(width, heads, batch_first=True), weights

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.attention(x, x, x, need_weights=self.weights)[0]
        return found


class Block(nn.Module):
    def __init__(self, width: int, attention: nn.Module) -> None:
        super().__init__()
        self.before, self.attention, self.between = nn.LayerNorm(width), attention, nn.LayerNorm(width)
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        found: Tensor = x + self.layers(self.between(x))
        return found


class Classifier(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.Sequential(*(Block(width, attention(options)) for _ in range(options.layers)))
        self.head = nn.Linear(width, 5)

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.head(self.blocks(self.words(words)).mean(1))
        return found


def attention(options: argparse.Namespace) -> nn.Module:
    if options.attention.startswith("multihead"):
        return TorchAttention(options.width, options.heads, weights=options.attention == "multihead-weights")
    return Attention(options.width, options.heads, options.attention, options.drop)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=8)
    add("--length", type=int, default=256)
    add("--width", type=int, default=128)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=2)
    add("--drop", type=float, default=0.0, help="share of the weights that are dropped")
    add("--attention", choices=("parts", "fused", "multihead", "multihead-weights"), default="parts")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    words, labels = torch.randint(WORDS, (1024, options.length)), torch.randint(5, (1024,))
    loader = DataLoader(TensorDataset(words, labels), batch_size=options.batch, shuffle=True)
    shared.training.train(loader, Classifier(options), options.steps)


if __name__ == "__main__":
    main()
