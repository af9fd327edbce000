"""Compiles the model, a training step, the optimizer's step and a checkpoint; prints dynamo's numbers of graphs and breaks for each."""

import io

import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    whole = torch.compile(model, backend="eager", fullgraph=True)

    @torch.compile(backend="eager")
    def train(x, y):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    @torch.compile(backend="eager")
    def update():
        optimizer.step()

    @torch.compile(backend="eager")
    def checkpoint(x):
        doubled = x * 2
        torch.save(doubled, io.BytesIO())
        return doubled + 1

    def report(what):
        counters = torch._dynamo.utils.counters
        print(what, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
        torch._dynamo.reset()
        counters.clear()

    for x, y in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(whole(x), y).backward()
        optimizer.step()
    report("model")
    for x, y in data:
        train(x, y)
    report("step")
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        update()
    report("optimizer")
    checkpoint(x)
    report("checkpoint")


if __name__ == "__main__":
    main()
