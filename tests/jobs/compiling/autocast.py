"""Trains a convolution whose whole forward pass is compiled, with autocast inside it on request. Prints losses, graphs and graph breaks."""

import sys

import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main(inside: bool) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8), torch.arange(64) % 4), batch_size=8)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def loss_of(x, y):
        if inside:
            with torch.autocast("cpu", torch.bfloat16):
                return nn.functional.cross_entropy(model(x), y)
        return nn.functional.cross_entropy(model(x), y)

    losses = []
    for x, y in data:
        loss = loss_of(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    counters = torch._dynamo.utils.counters
    print(losses, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


if __name__ == "__main__":
    main(sys.argv[1] == "inside")
