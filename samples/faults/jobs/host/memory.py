"""Trains a small net in a control group whose memory is nearly used up."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import shared.models
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BLOCK_BYTES = 4 << 20
FILLED_AFTER = 2  # steps, so that filling memory is not part of the training


class Group:
    """The control group above this process that limits its memory."""

    def __init__(self) -> None:
        lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
        found = [place for _, controllers, place in lines if "memory" in controllers.split(",")]
        self._old = bool(found)  # version 1 has a separate hierarchy for memory
        place = found[0] if found else next(place for _, controllers, place in lines if not controllers)
        self._folder = Path("/sys/fs/cgroup") / ("memory" if self._old else "") / place.lstrip("/")

    def held_share(self) -> float:
        """Share of the limit that is in use for anything but page cache."""
        stat = dict(line.split() for line in (self._folder / "memory.stat").read_text().splitlines())
        prefix = "total_" if self._old else ""
        cache = int(stat[f"{prefix}inactive_file"]) + int(stat[f"{prefix}active_file"])
        return (self._number("memory.usage_in_bytes" if self._old else "memory.current") - cache) / self.limit_bytes()

    def limit_bytes(self) -> int:
        return self._number("memory.limit_in_bytes" if self._old else "memory.max")

    def _number(self, name: str) -> int:
        return int((self._folder / name).read_text())


def fill(share: float) -> list[np.ndarray]:
    """Allocates memory until `share` of the limit is in use; returns the blocks, which the caller must keep."""
    group, held = Group(), []
    block = min(BLOCK_BYTES, int(0.002 * group.limit_bytes()))
    while group.held_share() < share:
        held.append(np.full(block, 1, np.uint8))
    return held


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--width", type=int, default=48)
    add(
        "--fill",
        type=float,
        default=0.0,
        metavar="SHARE",
        help="hold so much of the limit; the net takes a little more",
    )
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = DataLoader(TensorDataset(torch.rand(512, 3, 32, 32), torch.randint(10, (512,))), batch_size=16)
    model = shared.models.small_cnn(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    held, step = [], 0
    while step < options.steps:
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == FILLED_AFTER and options.fill:
                held = fill(options.fill)
            if step >= options.steps:
                break
    print(f"{os.getpid()}: {len(held)} blocks held")


if __name__ == "__main__":
    main()
