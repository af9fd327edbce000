"""Trains a decoder on known words: word by word in a loop, each time on all words so far, or on all words at once."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

WORDS = 200


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("form", choices=("prefixes", "steps", "whole"))
    add("--net", choices=("attention", "recurrent"), default="attention")
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=64)
    add("--layers", type=int, default=2)
    add("--length", type=int, default=24)
    return parser.parse_args()


class Attending(nn.Module):
    """Layers of attention that see earlier words only."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.form = options.form
        self.embed, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(options.length, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, options.layers)
        self.words = nn.Linear(width, WORDS)

    def forward(self, known: Tensor) -> Tensor:
        length = known.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        inputs = self.embed(known) + self.places[:length]
        if self.form == "whole":
            found: Tensor = self.words(self.layers(inputs, mask=mask, is_causal=True))
            return found
        scores = []
        for t in range(1, length + 1):
            seen = self.layers(inputs[:, :t], mask=mask[:t, :t], is_causal=True)
            scores.append(self.words(seen[:, -1]))
        return torch.stack(scores, dim=1)


class Recurring(nn.Module):
    """A recurrent layer, and what is read from its state."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.form = options.form
        self.embed = nn.Embedding(WORDS, width)
        whole = options.form == "whole"
        self.layer = nn.GRU(width, width, batch_first=True) if whole else nn.GRUCell(width, width)
        hidden = [
            part for _ in range(options.layers) for part in (nn.Linear(width, width), nn.LayerNorm(width), nn.GELU())
        ]
        self.read = nn.Sequential(*hidden, nn.Linear(width, WORDS))

    def forward(self, known: Tensor) -> Tensor:
        inputs = self.embed(known)
        if self.form == "whole":
            found: Tensor = self.read(self.layer(inputs)[0])
            return found
        state, scores = inputs.new_zeros(len(inputs), inputs.shape[2]), []
        for t in range(inputs.shape[1]):
            state = self.layer(inputs[:, t], state)
            scores.append(self.read(state))
        return torch.stack(scores, dim=1)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = (Attending if options.net == "attention" else Recurring)(options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    texts = TensorDataset(torch.randint(WORDS, (2048, options.length + 1)))
    loader = DataLoader(texts, batch_size=options.batch, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for (words,) in loader:
            scores = net(words[:, :-1])
            loss = cross_entropy(scores.flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
