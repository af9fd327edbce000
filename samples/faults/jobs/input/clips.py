"""Trains on clips of sound that are filtered by a bank of windowed sinc filters, which is computed for each clip or once, and collated as
tensors or as lists of numbers.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import shared.training
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

RATE = 16_000
SAMPLES = 4_000


class SincBank:
    """Band-pass filters between 50 Hz and half the rate."""

    def __init__(self, bands: int, taps: int) -> None:
        self.bands = bands
        self.taps = taps

    def edges(self, shift: float = 0.0) -> list[float]:
        top = RATE / 2 - 100
        return [50 + shift + (top - 50) * band / self.bands for band in range(self.bands + 1)]

    def kernels(self, shift: float = 0.0) -> NDArray[np.float32]:
        edges = self.edges(shift)
        window = [0.54 - 0.46 * math.cos(2 * math.pi * tap / (self.taps - 1)) for tap in range(self.taps)]
        found = np.zeros((self.bands, self.taps), np.float32)
        for band in range(self.bands):
            low, high = edges[band] / RATE, edges[band + 1] / RATE
            for tap in range(self.taps):
                at = tap - self.taps // 2
                found[band, tap] = window[tap] * (sinc(high, at) - sinc(low, at))
        return found


def sinc(cut: float, at: int) -> float:
    return 2 * cut if at == 0 else math.sin(2 * math.pi * cut * at) / (math.pi * at)


class Clips(Dataset[tuple[Tensor, int]]):
    """`made`: the bank "each" time that an item is loaded, "kept" from the start, or "shifted" by chance for each item."""

    def __init__(self, clips: Tensor, bank: SincBank, made: str, passes: int) -> None:
        self.clips = clips
        self.bank = bank
        self.made = made
        self.passes = passes
        self.kept = torch.from_numpy(bank.kernels())

    def __len__(self) -> int:
        return len(self.clips)

    def filters(self, item: int) -> Tensor:
        if self.made == "kept":
            return self.kept
        if self.made == "shifted":
            return torch.from_numpy(self.bank.kernels(float(np.random.default_rng(item).uniform(0, 9))))
        return torch.from_numpy(self.bank.kernels())

    def __getitem__(self, item: int) -> tuple[Tensor, int]:
        filters = self.filters(item)
        sound = self.clips[item]
        for _ in range(self.passes):
            bands = nn.functional.conv1d(sound[None, None], filters[:, None], stride=16)
        return bands[0].abs().log1p(), item % 10


def stacked(batch: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    return torch.stack([bands for bands, _ in batch]), torch.tensor([label for _, label in batch])


def listed(batch: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    return torch.FloatTensor([bands.tolist() for bands, _ in batch]), torch.tensor([label for _, label in batch])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--workers", type=int, default=0)
    add("--bands", type=int, default=16)
    add("--taps", type=int, default=65)
    add("--made", choices=("each", "kept", "shifted"), default="each")
    add("--passes", type=int, default=1, help="times that a clip is filtered")
    add("--listed", action="store_true", help="batches are made of lists of numbers")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    bank = SincBank(options.bands, options.taps)
    data = Clips(torch.randn(512, SAMPLES), bank, options.made, options.passes)
    workers = options.workers
    loader = DataLoader(
        data,
        batch_size=16,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        drop_last=True,
        collate_fn=listed if options.listed else stacked,
    )
    width = data[0][0].numel()
    net = nn.Sequential(
        nn.Flatten(), nn.Linear(width, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    shared.training.train(loader, net, options.steps)


if __name__ == "__main__":
    main()
