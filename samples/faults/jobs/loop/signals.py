"""Trains a small net on signals that its forward pass smooths, with a loss that weighs hard samples more: with numpy or with tensors."""

from __future__ import annotations

import argparse

import numpy as np
import shared.training
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

LENGTH, CLASSES = 256, 10
KERNEL = np.hanning(33) / np.hanning(33).sum()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=600)
    add("--batch", type=int, default=64)
    add("--width", type=int, default=512)
    add("--smooth", choices=("numpy", "tensors"), default="tensors")
    add("--times", type=int, default=8, help="of smoothing each signal")
    add("--weigh", choices=("numpy", "tensors", "no"), default="no")
    return parser.parse_args()


class Net(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.layers = nn.Sequential(
            nn.Linear(LENGTH, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, CLASSES)
        )
        self.numpy, self.times = options.smooth == "numpy", options.times
        band = np.stack([np.convolve(row, KERNEL, mode="same") for row in np.eye(LENGTH)])
        self.register_buffer("band", torch.from_numpy(np.linalg.matrix_power(band, options.times)).float())

    def forward(self, signals: Tensor) -> Tensor:
        signals = smooth(signals, self.times) if self.numpy else signals @ self.band
        found: Tensor = self.layers(signals)
        return found


def smooth(signals: Tensor, times: int) -> Tensor:
    rows = list(signals.numpy())
    for _ in range(times):
        rows = [np.convolve(row, KERNEL, mode="same") for row in rows]
    return torch.from_numpy(np.stack(rows).astype(np.float32))


def weights(losses: Tensor) -> Tensor:
    """More for the samples with the largest losses, by how they rank among resampled batches."""
    values = losses.detach().numpy()
    ranks = np.zeros(len(values))
    for seed in range(200):
        drawn = np.random.default_rng(seed).choice(values, len(values))
        ranks += np.searchsorted(np.sort(drawn), values)
    return torch.from_numpy(ranks / ranks.max()).float()


def weights_of_tensors(losses: Tensor) -> Tensor:
    ranks = losses.detach().argsort().argsort().float()
    return ranks / ranks.max()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    memory = TensorDataset(torch.rand(2048, LENGTH), torch.randint(CLASSES, (2048,)))
    loader = DataLoader(memory, batch_size=options.batch, shuffle=True)
    model = Net(options)
    if options.weigh == "no":
        shared.training.train(loader, model, options.steps)
        return
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    weigh, step = weights if options.weigh == "numpy" else weights_of_tensors, 0
    while step < options.steps:
        for signals, labels in loader:
            losses = nn.functional.cross_entropy(model(signals), labels, reduction="none")
            weight = weigh(losses)
            loss = (weight * losses).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break


if __name__ == "__main__":
    main()
