"""Trains on sequences or on a graph. A table of positions, or the normalised graph, is made in each forward pass or once."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--of", choices=("positions", "graph"), default="positions")
    add("--make", choices=("each", "once"), default="each")
    add("--length", type=int, default=512, help="of a sequence")
    add("--width", type=int, default=256)
    add("--layers", type=int, default=4)
    add("--batch", type=int, default=4, help="sequences")
    add("--nodes", type=int, default=4000, help="of the graph")
    return parser.parse_args()


def positions(length: int, width: int) -> Tensor:
    """Sines and cosines of each position, at falling frequencies."""
    at = torch.arange(length, dtype=torch.float64)[:, None]
    turns = at * torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-9.2 / width))
    return torch.stack([turns.sin(), turns.cos()], dim=-1).flatten(1).float()


class Sequences(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.kept = positions(options.length, width) if options.make == "once" else None
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(options.layers)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, inputs: Tensor) -> Tensor:
        table = positions(inputs.size(1), inputs.size(2)) if self.kept is None else self.kept
        scores: Tensor = self.head(self.layers(inputs + table).mean(1))
        return scores


def normalised(edges: Tensor, nodes: int) -> Tensor:
    """The graph as a sparse matrix with loops, divided by the roots of both nodes' degrees."""
    rows, columns = torch.cat([edges, torch.arange(nodes).repeat(2, 1)], dim=1)
    roots = torch.bincount(rows, minlength=nodes).float().rsqrt()
    matrix = torch.sparse_coo_tensor(torch.stack([rows, columns]), roots[rows] * roots[columns], (nodes, nodes))
    return matrix.coalesce()


class Graph(nn.Module):
    def __init__(self, edges: Tensor, options: argparse.Namespace) -> None:
        super().__init__()
        self.edges, self.nodes = edges, options.nodes
        self.kept = normalised(edges, options.nodes) if options.make == "once" else None
        self.first, self.last = nn.Linear(options.width, options.width), nn.Linear(options.width, CLASSES)

    def forward(self, features: Tensor) -> Tensor:
        graph = normalised(self.edges, self.nodes) if self.kept is None else self.kept
        hidden = torch.sparse.mm(graph, self.first(features)).relu()
        return torch.sparse.mm(graph, self.last(hidden))


def train_on_sequences(options: argparse.Namespace) -> Tensor:
    inputs, labels = torch.randn(256, options.length, options.width), torch.randint(CLASSES, (256,))
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=options.batch, shuffle=True)
    model = Sequences(options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while True:
        for x, y in loader:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                return loss


def train_on_graph(options: argparse.Namespace) -> Tensor:
    edges = torch.randint(options.nodes, (2, 8 * options.nodes))
    features, labels = torch.randn(options.nodes, options.width), torch.randint(CLASSES, (options.nodes,))
    model = Graph(edges, options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(features), labels)
        loss.backward()
        optimizer.step()
    return loss


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    loss = train_on_graph(options) if options.of == "graph" else train_on_sequences(options)
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
