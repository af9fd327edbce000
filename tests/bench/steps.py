"""The job that `overhead.py` times: a plain loop over synthetic rows, on one rank or, started by torchrun, on several.

    python tests/bench/steps.py --size 5ms --steps 500 --took FILE

FILE gets the time of each step, so that start-up and shutdown do not count, and the wall clock at the first and the last step.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sizes import SIZES
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

# (width, layers, batch size) for one rank (False) and several (True): an all-reduce of two ranks on one machine takes at least a
# millisecond. The nets are deep and narrow, for much compute with few parameters.
LAYERS = {
    False: {"0.3ms": (32, 0, 16), "1ms": (256, 2, 32), "5ms": (256, 8, 64), "50ms": (512, 8, 256)},
    True: {"1ms": (64, 1, 16), "5ms": (256, 4, 48), "50ms": (512, 7, 256)},
}
RESNET50_BATCH = {False: 3, True: 1}


class Rows(Dataset[tuple[Tensor, int]]):
    def __init__(self, shape: tuple[int, ...], length: int) -> None:
        self.shape, self.length = shape, length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.zeros(self.shape), index % 10


@dataclass(frozen=True, slots=True)
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer
    data: DataLoader[tuple[Tensor, int]]


@dataclass(slots=True)
class Stopwatch:
    """One clock reading a step."""

    ended_ns: list[int] = field(default_factory=lambda: [time.perf_counter_ns()])
    first_unix_s: float = 0.0

    def step_ended(self) -> None:
        self.ended_ns.append(time.perf_counter_ns())
        if not self.first_unix_s:
            self.first_unix_s = time.time()

    def took(self) -> dict[str, Any]:
        step_ns = [b - a for a, b in pairwise(self.ended_ns)]
        return {"first_unix_s": self.first_unix_s, "last_unix_s": time.time(), "step_ns": step_ns}


def options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    parser.add_argument("--size", choices=SIZES, default="5ms")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--took", type=Path, required=True, metavar="FILE")
    return parser.parse_args()


def model_of(size: str, *, distributed: bool) -> tuple[nn.Module, tuple[int, ...], int]:
    """Returns (model, shape of a sample, batch size)."""
    if size == "250ms":
        from torchvision.models import resnet50

        return resnet50(num_classes=10), (3, 64, 64), RESNET50_BATCH[distributed]
    width, layers, batch = LAYERS[distributed][size]
    hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, width), nn.ReLU(), *hidden, nn.Linear(width, 10)), (64,), batch


def prepare(size: str, steps: int, workers: int = 0) -> Training:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    distributed = int(os.environ.get("WORLD_SIZE", "1")) > 1
    model, shape, batch = model_of(size, distributed=distributed)
    if distributed:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    data = DataLoader(Rows(shape, batch * steps), batch_size=batch, num_workers=workers)
    return Training(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), data)


def write_took(file: Path, took: dict[str, Any]) -> None:
    """Writes rank 0's times, which stand for all ranks, as they step together. Leaves the process group."""
    speaker = True
    if dist.is_initialized():
        speaker = dist.get_rank() == 0
        dist.barrier()  # gloo aborts at exit when a peer left while it was still connected
        dist.destroy_process_group()
    if speaker:
        file.write_text(json.dumps({"torch": torch.__version__, **took}))


def main() -> None:
    asked = options(argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter))
    training = prepare(asked.size, asked.steps, asked.workers)
    model, optimizer = training.model, training.optimizer
    watch = Stopwatch()
    for x, y in training.data:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        watch.step_ended()
    write_took(asked.took, watch.took())


if __name__ == "__main__":
    main()
