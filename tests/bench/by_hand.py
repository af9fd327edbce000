"""Compares images/s of `rn50-advisor bench` with those of a hand-written loop, in turns on one machine: they must agree within 5 %.

python tests/bench/by_hand.py [MODEL ...] [--batch 8] [--rounds 8] [--seconds 8] [--markdown FILE]   on CPUs, fp32, channels first
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torchvision
from bench_results import machine
from bench_tables import grid
from sampling import interval_95

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 5
LEAST_STEPS = 8
ALIKE = 0.05


@dataclass(frozen=True, slots=True)
class Compared:
    """Pairs of images/s of one model."""

    model: str
    by_hand: tuple[float, ...]
    by_bench: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        return [bench / hand for hand, bench in zip(self.by_hand, self.by_bench, strict=True)]

    @property
    def alike(self) -> bool:
        return abs(median(self.ratios) - 1) <= ALIKE

    @property
    def row(self) -> tuple[str, ...]:
        low, high = interval_95(self.ratios)
        rates = (f"{median(rates):.2f}" for rates in (self.by_hand, self.by_bench))
        return (
            self.model,
            *rates,
            f"{median(self.ratios):.3f} ({low:.3f} … {high:.3f})",
            "yes" if self.alike else "no",
        )


def by_hand(model_name: str, batch: int, seconds: float) -> float:
    """Images/s of a plain loop, without the advisor's trainer or recorder."""
    torch.manual_seed(0)
    model = torchvision.models.get_model(model_name, weights=None).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    images, labels = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
    steps_s: list[float] = []
    until = None
    while until is None or perf_counter() < until or len(steps_s) < WARM_UP + LEAST_STEPS:
        began = perf_counter()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        steps_s.append(perf_counter() - began)
        if len(steps_s) == WARM_UP:
            until = perf_counter() + seconds
    return batch / median(steps_s[WARM_UP:])


def by_hand_apart(model: str, batch: int, seconds: float) -> float:
    """Runs `by_hand` in a separate process, as bench does for each of its settings."""
    command = [sys.executable, __file__, model, f"--batch={batch}", f"--seconds={seconds}", "--loop"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_bench(model: str, batch: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "rn50_advisor.advisor.cli",
            "bench",
            f"--model={model}",
            f"--batch={batch}",
            "--device=cpu",
        ]
        command += ["--precisions=fp32", "--layout=first", "--no-sweep", "--devices=1", f"--seconds={seconds}"]
        command += ["--format=json", f"--run-dir={folder}"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    (cell,) = json.loads(done.stdout)["cells"]
    return float(cell["images_per_s"]["value"])


def compare(model: str, batch: int, seconds: float, rounds: int) -> Compared:
    """Runs both in turns; each comes first equally often."""
    hand, bench = [], []
    for number in range(rounds):
        for way in (by_hand_apart, by_bench)[:: 1 if number % 2 == 0 else -1]:
            (bench if way is by_bench else hand).append(way(model, batch, seconds))
        print(f"{model}, round {number + 1}: by hand {hand[-1]:.2f} images/s, bench {bench[-1]:.2f}", flush=True)
    return Compared(model, tuple(hand), tuple(bench))


def markdown(results: Sequence[Compared], batch: int, seconds: float) -> str:
    where = machine()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    headings = ("model", "by hand, images/s", "bench, images/s", "bench of by hand (95 %)", "within 5 %")
    parts = [
        "# What `bench` says beside a loop written by hand",
        "Made by `make by-hand`; run it again instead of editing this.",
        f"{where['date']}, commit {commit or 'unknown'}: {where['cores']} cores, {where['memory_gib']} GiB, "
        f"Python {where['python']}, torch {where['torch']}, Linux {where['kernel']}.",
        f"{len(results[0].ratios)} pairs of runs in turns, {seconds:g} s each, batch {batch}, FP32, channels first, on the CPU. "
        "Medians of the runs and of the pairs' ratios, with an interval by bootstrap over the pairs.",
        grid(headings, [one.row for one in results]),
    ]
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet18", "resnet50"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.loop:
        print(by_hand(told.models[0], told.batch, told.seconds))
        return
    results = [compare(model, told.batch, told.seconds, told.rounds) for model in told.models]
    text = markdown(results, told.batch, told.seconds)
    print(text)
    if told.markdown:
        told.markdown.write_text(text)
    sys.exit(0 if all(one.alike for one in results) else 1)


if __name__ == "__main__":
    main()
