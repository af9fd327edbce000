"""Trains a forecaster that goes on from its own forecasts, and keeps them in a list, or in a tensor that each of them makes longer."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

SERIES = 512


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--width", type=int, default=64)
    add("--signals", type=int, default=48, help="of a series")
    add("--batch", type=int, default=128)
    add("--horizon", type=int, default=240, help="forecasts of each series")
    add("--listed", action="store_true", help="they are kept in a list")
    return parser.parse_args()


class Forecaster(nn.Module):
    def __init__(self, signals: int, width: int) -> None:
        super().__init__()
        self.cell, self.out = nn.GRUCell(signals, width), nn.Linear(width, signals)

    def forward(self, now: Tensor, horizon: int) -> Tensor:
        state, found = None, now.unsqueeze(1)
        for _ in range(horizon):
            state = self.cell(now, state)
            now = now + self.out(state)
            found = torch.cat([found, now.unsqueeze(1)], dim=1)
        return found

    def listed(self, now: Tensor, horizon: int) -> Tensor:
        state, found = None, [now]
        for _ in range(horizon):
            state = self.cell(now, state)
            now = now + self.out(state)
            found.append(now)
        return torch.stack(found, dim=1)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    net = Forecaster(options.signals, options.width)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    series = torch.randn(SERIES, options.horizon + 1, options.signals).cumsum(1) * 0.05
    for _ in range(options.steps):
        wanted = series[torch.randint(SERIES, (options.batch,))]
        found = (net.listed if options.listed else net)(wanted[:, 0], options.horizon)
        loss = mse_loss(found, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
