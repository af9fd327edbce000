"""Trains a classifier of texts on the features of a frozen encoder, which it runs in each step, or once for each text.

With `--mask` the loop hides random words before the encoder sees them; with `--teacher` the encoder follows the one that learns.
"""

from __future__ import annotations

import argparse
import copy

import shared.group
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WORDS = 2_000


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.attention = nn.LayerNorm(width), nn.MultiheadAttention(width, 4, batch_first=True)
        self.second = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        given = self.first(hidden)
        hidden = hidden + self.attention(given, given, given, need_weights=False)[0]
        mixed: Tensor = hidden + self.mlp(self.second(hidden))
        return mixed


class TextEncoder(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))

    def forward(self, words: Tensor) -> Tensor:
        hidden: Tensor = self.blocks(self.words(words))
        return hidden


class Head(nn.Module):
    """A small transformer over the features."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width) for _ in range(depth)))
        self.classes = nn.Linear(width, 10)

    def forward(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classes(self.blocks(features).mean(1))
        return logits


def features_of(encoder: nn.Module, words: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = encoder(words)
    return found


def hide(words: Tensor, share: float) -> Tensor:
    return words.masked_fill(torch.rand(words.shape) < share, 0)


def follow(teacher: nn.Module, student: nn.Module) -> None:
    with torch.no_grad():
        for mean, new in zip(teacher.parameters(), student.parameters(), strict=True):
            mean.lerp_(new, 0.01)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--batch", type=int, default=32)
    add("--texts", type=int, default=512)
    add("--width", type=int, default=128)
    add("--depth", type=int, default=4)
    add("--head", type=int, default=2)
    add("--mask", type=float, default=0.0)
    add("--teacher", action="store_true")
    add("--once", action="store_true", help="compute the features before training")
    return parser.parse_args()


def main() -> None:
    options = parse()
    shared.group.join()
    torch.manual_seed(0)
    labels = torch.randint(0, 10, (options.texts,))
    texts = (torch.randint(1, WORDS // 2, (options.texts, 48)) + 97 * labels[:, None]) % WORDS
    encoder = TextEncoder(options.width, options.depth).eval().requires_grad_(False)
    student = copy.deepcopy(encoder).requires_grad_(True).train() if options.teacher else None
    head = Head(options.width, options.head)
    given = torch.cat([features_of(encoder, part) for part in texts.split(64)]) if options.once else texts
    loader = DataLoader(TensorDataset(given, labels), options.batch, shuffle=True, drop_last=True)
    learning = [*head.parameters(), *(student.parameters() if student is not None else ())]
    optimizer = torch.optim.AdamW(learning, lr=1e-4)
    done = 0
    while done < options.steps:
        for batch, classes in loader:
            words = hide(batch, options.mask) if options.mask else batch
            features = words if options.once else features_of(encoder, words)
            if student is None:
                loss = nn.functional.cross_entropy(head(features), classes)
            else:
                learned = student(words)
                loss = nn.functional.cross_entropy(head(learned), classes) + nn.functional.mse_loss(learned, features)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if student is not None:
                follow(encoder, student)
            done += 1
            if done % 50 == 0:
                print(f"step {done}: loss {loss.item():.3f}", flush=True)
            if done == options.steps:
                break


if __name__ == "__main__":
    main()
