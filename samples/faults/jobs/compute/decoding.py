"""Trains an attentive decoder that goes word by word; the keys of its memory are computed before the loop, or again for each word."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softmax
from torch.utils.data import DataLoader, TensorDataset

WORDS = 500


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--width", type=int, default=96)
    add("--batch", type=int, default=24)
    add("--source", type=int, default=40, help="words that are attended to")
    add("--target", type=int, default=20, help="words that are written")
    add("--keys", choices=("once", "each"), default="each")
    add("--norm", action="store_true", help="weight normalisation of the state's layer")
    add("--cached", action="store_true", help="its weight computed once for all words")
    return parser.parse_args()


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.key, self.query, self.score = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, state: Tensor, memory: Tensor, keys: Tensor | None) -> Tensor:
        if keys is None:
            keys = self.key(memory)
        shares = softmax(self.score(torch.tanh(keys + self.query(state).unsqueeze(1))), dim=1)
        return (shares * memory).sum(1)


class Decoder(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.options = options
        self.embed, self.encode = nn.Embedding(WORDS, width), nn.Linear(width, width)
        self.attention, self.cell = Attention(width), nn.GRUCell(2 * width, width)
        self.carry, self.words = nn.Linear(width, width), nn.Linear(width, WORDS)
        if options.norm:
            nn.utils.parametrizations.weight_norm(self.carry)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = torch.tanh(self.encode(self.embed(source)))
        keys = self.attention.key(memory) if self.options.keys == "once" else None
        if self.options.cached:
            with nn.utils.parametrize.cached():
                return self.decode(self.embed(target), memory, keys)
        return self.decode(self.embed(target), memory, keys)

    def decode(self, written: Tensor, memory: Tensor, keys: Tensor | None) -> Tensor:
        state, states = memory.mean(1), []
        for n in range(written.size(1)):
            read = self.attention(state, memory, keys)
            state = self.cell(torch.cat([written[:, n], read], dim=1), self.carry(state))
            states.append(state)
        return self.words(torch.stack(states, 1))


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    net = Decoder(options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    pairs = TensorDataset(
        torch.randint(WORDS, (4096, options.source)), torch.randint(WORDS, (4096, options.target + 1))
    )
    loader = DataLoader(pairs, batch_size=options.batch, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for source, target in loader:
            optimizer.zero_grad()
            logits = net(source, target[:, :-1])
            cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten()).backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break


if __name__ == "__main__":
    main()
