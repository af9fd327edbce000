"""Trains a recurrent network by rewards for the sequences that it draws; it goes through each sequence so far again, or keeps its state."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

WORDS = 300


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=120)
    add("--width", type=int, default=96)
    add("--batch", type=int, default=16)
    add("--length", type=int, default=40)
    add("--hidden", type=int, default=0, help="width of a critic beside it")
    add("--kept", action="store_true", help="the state is kept from one word to the next")
    return parser.parse_args()


class Writer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed, self.cells, self.words = (
            nn.Embedding(WORDS, width),
            nn.GRU(width, width, 2, batch_first=True),
            nn.Linear(width, WORDS),
        )

    def forward(self, ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        states, last = self.cells(self.embed(ids), state)
        return self.words(states), last


@torch.no_grad()
def draw(writer: Writer, batch: int, length: int) -> Tensor:
    ids = torch.zeros(batch, 1, dtype=torch.long)
    for _ in range(length):
        scores, _ = writer(ids)
        ids = torch.cat([ids, torch.multinomial(scores[:, -1].softmax(-1), 1)], 1)
    return ids


@torch.no_grad()
def draw_on(writer: Writer, batch: int, length: int) -> Tensor:
    ids, state = [torch.zeros(batch, 1, dtype=torch.long)], None
    for _ in range(length):
        scores, state = writer(ids[-1], state)
        ids.append(torch.multinomial(scores[:, -1].softmax(-1), 1))
    return torch.cat(ids, 1)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    writer = Writer(options.width)
    critic = (
        nn.Sequential(nn.Linear(WORDS, options.hidden), nn.ReLU(), nn.Linear(options.hidden, 1))
        if options.hidden
        else None
    )
    parameters = [*writer.parameters(), *(critic.parameters() if critic else ())]
    optimizer = torch.optim.Adam(parameters, lr=1e-3, fused=True)
    for _ in range(options.steps):
        ids = (draw_on if options.kept else draw)(writer, options.batch, options.length)
        reward = (ids[:, 1:] % 2 == 0).float().mean(1)
        scores, _ = writer(ids[:, :-1])
        logged = cross_entropy(scores.transpose(1, 2), ids[:, 1:], reduction="none").sum(1)
        loss = ((reward - reward.mean()) * logged).mean()
        if critic is not None:
            loss = loss + (critic(scores.detach()).mean((1, 2)) - reward).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
