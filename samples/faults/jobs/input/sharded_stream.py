"""Trains on a stream of texts on several ranks: accelerate divides it behind the tokenising, or each rank reads lines of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from itertools import islice

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

WORDS, LENGTH = 500, 32
RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Texts(IterableDataset[Tensor]):
    def __init__(self, words: int, own: bool) -> None:
        self.words, self.own = words, own

    def __iter__(self) -> Iterator[Tensor]:
        lines = iter(range(100_000))
        for number in islice(lines, RANK, None, WORLD) if self.own else lines:
            yield self.tokens(number)

    def tokens(self, number: int) -> Tensor:
        found: list[int] = []
        for word in (f"{number * 31 + n:05}" for n in range(self.words)):
            found.append(sum(map(ord, word)) % WORDS)
        return torch.tensor(found[:LENGTH])


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.hidden, self.head = nn.Embedding(WORDS, 128), nn.Linear(128, 512), nn.Linear(512, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.hidden(self.words(tokens)).relu())
        return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--words", type=int, default=400, help="of a text, tokenised and cut")
    add("--own", action="store_true", help="each rank tokenises its own lines alone")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=False))
    loader = DataLoader(Texts(options.words, options.own), batch_size=16)
    model = Model()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.01))
    if not options.own:
        loader = accelerator.prepare(loader)
    for _, tokens in zip(range(options.steps), loader, strict=False):
        scores = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.end_training()


if __name__ == "__main__":
    main()
