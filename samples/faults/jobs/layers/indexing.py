"""Trains a recurrent net on sequences, or a net on a graph: parts taken and set one by one or at once, rows by index or `index_select`."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, TensorDataset

INPUTS = 16
GRAPHS = 8


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--of", choices=("sequences", "graph"), default="sequences")
    add("--take", choices=("parts", "once"), default="parts")
    add("--set", choices=("parts", "once"), default="parts")
    add("--batch", type=int, default=32, help="sequences")
    add("--length", type=int, default=160, help="of a sequence")
    add("--width", type=int, default=96)
    add("--nodes", type=int, default=4000, help="of the graph")
    add("--edges", type=int, default=30_000)
    return parser.parse_args()


class Sequences(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.options = options
        self.inputs, self.cell, self.head = nn.Linear(INPUTS, width), nn.GRUCell(width, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.inputs(x)
        state = seen.new_zeros(len(x), self.options.width)
        parts = seen.unbind(1) if self.options.take == "once" else None
        out, states = seen.new_zeros(seen.shape), []
        for t in range(seen.shape[1]):
            state = self.cell(seen[:, t] if parts is None else parts[t], state)
            if self.options.set == "parts":
                out[:, t] = state
            else:
                states.append(state)
        found: Tensor = self.head(torch.stack(states, 1) if states else out)
        return found


class Graph(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.options = options
        ends = torch.randint(options.nodes, (2, options.edges))
        self.source, self.target = ends[0], ends[1]
        self.inputs, self.head = nn.Linear(INPUTS, width), nn.Linear(width, 1)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        nodes = self.inputs(x[0])
        for layer in self.layers:
            sent = nodes[self.source] if self.options.take == "parts" else nodes.index_select(0, self.source)
            got = torch.zeros_like(nodes).index_add_(0, self.target, sent)
            nodes = nodes + layer(got).relu()
        found: Tensor = self.head(nodes)[None]
        return found


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    sequences = options.of == "sequences"
    batch = options.batch if sequences else 1
    kept = (GRAPHS * batch, options.length if sequences else options.nodes)
    data = TensorDataset(torch.randn(*kept, INPUTS), torch.randn(*kept, 1))
    net = (Sequences if sequences else Graph)(options)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    step = 0
    while step < options.steps:
        for x, wanted in DataLoader(data, batch_size=batch, shuffle=True):
            loss = mse_loss(net(x), wanted)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
