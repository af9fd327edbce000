"""Trains small nets in memory: on sequences step by step or at once, on samples one by one or together, in micro-batches."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 10
INPUTS = 16
ROWS = 4096


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("net", choices=("cell", "own-cell", "lstm", "gru", "lstm-steps", "gru-steps", "rows"))
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=16)
    add("--accumulate", type=int, default=1)
    add("--width", type=int, default=32)
    add("--length", type=int, default=80, help="time steps of a sequence")
    add("--one-by-one", action="store_true", help="the loop calls the net for each sample of a batch")
    return parser.parse_args()


class OwnCell(nn.Module):
    """An LSTM's cell as papers write it."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.inputs, self.state = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        hidden, cell = state
        take, forget, new, give = (self.inputs(x) + self.state(hidden)).chunk(4, 1)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(take) * torch.tanh(new)
        return torch.sigmoid(give) * torch.tanh(cell), cell


class StepByStep(nn.Module):
    def __init__(self, cell: nn.Module, width: int) -> None:
        super().__init__()
        self.cell, self.head, self.width = cell, nn.Linear(width, CLASSES), width

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(len(x), self.width), x.new_zeros(len(x), self.width)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t], state)
        found: Tensor = self.head(state[0])
        return found


class AtOnce(nn.Module):
    def __init__(self, layer: type[nn.RNNBase], width: int) -> None:
        super().__init__()
        self.layer, self.head = layer(INPUTS, width, batch_first=True), nn.Linear(width, CLASSES)  # type: ignore[call-arg]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.layer(x)[0][:, -1])
        return found


class LayerStepByStep(AtOnce):
    def forward(self, x: Tensor) -> Tensor:
        state = None
        for x_t in x.unbind(1):
            out, state = self.layer(x_t.unsqueeze(1), state)
        found: Tensor = self.head(out[:, -1])
        return found


def made(net: str, width: int) -> nn.Module:
    if net == "rows":
        hidden = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Linear(INPUTS, width), *hidden, nn.Linear(width, CLASSES))
    if net in ("lstm", "gru"):
        return AtOnce(nn.LSTM if net == "lstm" else nn.GRU, width)
    if net.endswith("-steps"):
        return LayerStepByStep(nn.LSTM if net == "lstm-steps" else nn.GRU, width)
    return StepByStep((nn.LSTMCell if net == "cell" else OwnCell)(INPUTS, width), width)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = options.batch * min(ROWS // options.batch, options.steps * options.accumulate)
    shape = (rows, INPUTS) if options.net == "rows" else (rows, options.length, INPUTS)
    data = TensorDataset(torch.randn(shape), torch.randint(CLASSES, (rows,)))
    loader = DataLoader(data, batch_size=None, sampler=torch.randperm(rows).split(options.batch))
    model = made(options.net, options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    done = 0
    while done < options.steps * options.accumulate:
        for x, y in loader:
            if options.one_by_one:
                losses = [cross_entropy(model(x[n : n + 1]), y[n : n + 1]) for n in range(len(x))]
                loss = torch.stack(losses).mean()
            else:
                loss = cross_entropy(model(x), y)
            (loss / options.accumulate).backward()
            done += 1
            if done % options.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
            if done == options.steps * options.accumulate:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
