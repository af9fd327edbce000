"""Cost of the recorder in a loader's workers: a look into a sample, on equal batches with and without it, in turns in one process;
the clocks of each batch; and the extra time of `iter(loader)`, in processes that take turns.

python tests/bench/looks.py [IMAGES]     IMAGES: an ImageFolder, for pictures beside the arithmetic
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter_ns, thread_time_ns
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate
from torch.utils.data._utils.fetch import _MapDatasetFetcher
from torchvision import transforms
from torchvision.datasets import ImageFolder

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from rn50_advisor.advisor.run.rings.own_folder import hold
from rn50_advisor.probes.rank.layout import ROLE_WORKER, WORKER_SLOTS
from rn50_advisor.probes.rank.ring import Ring
from rn50_advisor.probes.rank.workers.sample_profiles import FIRST_EVERY_NS, LAST_EVERY_NS, ProfileSchedule
from rn50_advisor.probes.rank.workers.worker_batches import WorkerLog

BATCH = 32
ROUNDS = 300
PAIRS = 7  # of processes
OPENING = """
from statistics import median
from time import perf_counter
from torch.utils.data import DataLoader
loader, took = DataLoader(range(64), num_workers=2), []
for _ in range(30):
    began = perf_counter()
    batches = iter(loader)
    took.append(perf_counter() - began)
    next(batches)
    del batches
print(median(took))
"""


class Add:
    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, picture: Any) -> Any:
        return picture + self.amount


class Arrays(Dataset[Any]):
    """Samples of some ten microseconds, for which a look costs most."""

    def __init__(self) -> None:
        self.picture = np.zeros((3, 32, 32), np.float32)
        self.transform = transforms.Compose([Add(n) for n in range(6)])

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        return torch.from_numpy(self.transform(self.picture)), index


def pictures(folder: str) -> ImageFolder:
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    return ImageFolder(folder, transforms.Compose([*steps, transforms.Normalize([0.5] * 3, [0.25] * 3)]))


def measure(name: str, dataset: Any, rounds: int) -> None:
    fetcher = _MapDatasetFetcher(dataset, True, default_collate, False)
    with_us: list[float] = []
    without_us: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        profiles, ring = ProfileSchedule(folder), Ring(f"{folder}/bench.ring", slots=WORKER_SLOTS, role=ROLE_WORKER)
        for n in range(2 * rounds):
            index = [(n // 2 * BATCH + i) % len(dataset) for i in range(BATCH)]  # each batch twice
            wall, began = perf_counter_ns(), thread_time_ns()
            if n % 2:
                profile = profiles.start(wall, dataset, index)
                profile.begin()
                batch = fetcher.fetch(profile.index)
                profile.finish(ring, wall, BATCH, batch, worker=0, loader=0)
            else:
                fetcher.fetch(index)
            (with_us if n % 2 else without_us).append((thread_time_ns() - began) / 1e3)
    cost = median(with_us) - median(without_us)
    first, last = (cost * 1e3 / every for every in (FIRST_EVERY_NS, LAST_EVERY_NS))
    print(
        f"{name}: a batch {median(without_us):.0f} us of CPU, with a look {median(with_us):.0f}: a look costs {cost:.0f} us,"
        f" at most {100 * first:.2f} % of a worker's time at first and {100 * last:.3f} % later"
    )


def measure_clocks() -> None:
    """Prints the recorder's own count, in a process that does nothing else; a worker's caches are colder."""
    with tempfile.TemporaryDirectory() as folder:
        log = WorkerLog(folder, os.getpid(), 0, 0)
        costs = []
        for _ in range(ROUNDS * 10):
            before = log.self_ns
            log.end(log.begin(), BATCH)
            costs.append((log.self_ns - before) / 1e3)
    print(f"clocks of a batch: {median(costs):.1f} us, {median(costs) / 10:.2f} % of one that takes a millisecond")


def measure_opening() -> None:
    inject = str(Path(__file__).resolve().parents[2] / "src" / "rn50_advisor" / "probes" / "rank" / "inject")
    ratios = []
    for _ in range(PAIRS):
        with tempfile.TemporaryDirectory() as folder:
            hold(Path(folder))
            watched = {"RN50_ADVISOR_DIR": folder, "PYTHONPATH": inject}
            alone_s, watched_s = (_opening_s(more) for more in ({}, watched))
        ratios.append(watched_s / alone_s)
    print(f"iter(loader) of two workers: {median(ratios):.3f} times as long ({min(ratios):.3f} to {max(ratios):.3f})")


def _opening_s(more: dict[str, str]) -> float:
    done = subprocess.run([sys.executable, "-c", OPENING], env={**os.environ, **more}, check=True, capture_output=True)
    return float(done.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure("arrays in memory", Arrays(), ROUNDS)
    if len(sys.argv) > 1:
        measure("pictures", pictures(sys.argv[1]), ROUNDS // 3)
    measure_clocks()
    measure_opening()
