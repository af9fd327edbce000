"""Trains a compiled model, then the same one uncompiled. Prints whether both had the same losses, and the number of graphs."""

import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, TensorDataset


def losses(*, compiled: bool) -> list[str]:
    torch.manual_seed(5)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))
    data = DataLoader(TensorDataset(torch.randn(128, 3, 8, 8), torch.arange(128) % 4), batch_size=8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    called = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    found = []
    for x, y in data:
        loss = nn.functional.cross_entropy(called(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item().hex())
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(losses(compiled=True) == losses(compiled=False), counters["stats"]["unique_graphs"])
