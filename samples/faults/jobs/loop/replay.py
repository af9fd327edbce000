"""Trains a small net on batches that the loop draws from a memory of its own, and keeps a record of the losses.

Drawing permutes all of the memory's indices or copies its items; batches are made of rows; records are joined to all earlier ones.
"""

from __future__ import annotations

import argparse
import random
from collections import deque
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

FEATURES, CLASSES = 24, 6


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=1500)
    add("--batch", type=int, default=128)
    add("--width", type=int, default=256)
    add("--items", type=int, default=300_000)
    add("--draw", choices=("permute", "few"), default="few")
    add("--queue", choices=("list", "deque", "none"), default="none", help="take the oldest items of a queue instead")
    add("--rows", action="store_true", help="make each batch a list of rows, and that a tensor")
    add("--fields", action="store_true", help="make each batch columns of rows with names, and those tensors")
    add("--record", choices=("join", "append", "none"), default="none", help="of each sample's loss and scores")
    return parser.parse_args()


class Row(NamedTuple):
    state: Any
    action: Any


class Memory:
    """Items in arrays, drawn at random; or a queue of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        generator = np.random.RandomState(0)
        self.states = generator.rand(options.items, FEATURES).astype(np.float32)
        self.actions = generator.randint(0, CLASSES, options.items)
        self.rows, self.fields = options.rows, options.fields
        self.batch, self.draw = options.batch, options.draw
        self.waiting: list[int] | deque[int] = (list if options.queue == "list" else deque)(range(options.items))
        self.queued = options.queue != "none"

    def indices(self) -> np.ndarray:
        if self.queued:
            return self.oldest()
        if self.draw == "permute":
            return np.random.permutation(len(self.states))[: self.batch]
        return np.array(random.sample(range(len(self.states)), self.batch))

    def oldest(self) -> np.ndarray:
        taken = []
        for _ in range(self.batch):
            if isinstance(self.waiting, list):
                taken.append(self.waiting.pop(0))
            else:
                taken.append(self.waiting.popleft())
        self.waiting.extend(taken)
        return np.array(taken)

    def sample(self) -> tuple[Tensor, Tensor]:
        at = self.indices()
        if self.fields:
            row = Row(*zip(*[(self.states[n].tolist(), self.actions[n]) for n in at], strict=False))
            return torch.tensor(row.state), torch.tensor(row.action)
        if self.rows:
            states = [self.states[n] for n in at]
            return torch.tensor(states), torch.from_numpy(self.actions[at])
        return torch.from_numpy(self.states[at]), torch.from_numpy(self.actions[at])


class Record:
    """The scores of all samples so far, in one tensor or in a list of them."""

    def __init__(self, how: str) -> None:
        self.how, self.joined, self.parts = how, torch.empty(0, CLASSES), list[Tensor]()

    def add(self, scores: Tensor) -> None:
        if self.how == "join":
            self.joined = torch.cat([self.joined, scores])
        elif self.how == "append":
            self.parts.append(scores)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    memory, record = Memory(options), Record(options.record)
    width = options.width
    net = nn.Sequential(
        nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(options.steps):
        states, actions = memory.sample()
        scores = net(states)
        loss = nn.functional.cross_entropy(scores, actions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record.add(scores.detach())


if __name__ == "__main__":
    main()
