"""A training that evaluates after its twelfth step: on batches of a loader without workers (`loader`), or on tensors (`memory`).

Prints the number of steps after the evaluation, and whether a profiler still runs.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(nn.Sequential):
    def forward(self, x):
        y = super().forward(x)
        return y if self.training else nn.functional.celu(y)


def evaluate(model: nn.Module, held_out: DataLoader, style: str) -> None:
    if style == "loader":
        model.training = False  # only this flag: the recorder must recognise the evaluation by its loader
        with torch.no_grad():
            for (x,) in held_out:
                model(x)
    else:
        model.eval()
        with torch.no_grad():
            for _ in range(20):
                model(held_out.dataset.tensors[0])
    model.train()


def main(style: str) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = Model(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = DataLoader(TensorDataset(torch.randn(200, 3, 8, 8), torch.arange(200) % 4), batch_size=8)
    held_out = DataLoader(TensorDataset(torch.randn(64, 3, 8, 8)), batch_size=8)
    after = 0
    for step, (x, y) in enumerate(data):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 11:
            evaluate(model, held_out, style)
        after += step > 11
    print(after, torch.autograd._profiler_enabled())


if __name__ == "__main__":
    main(sys.argv[1])
