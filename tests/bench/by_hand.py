"""Images/s of `rn50-advisor bench` beside those of a loop written by hand, in turns on one machine: they must be the same to 5 %.

python tests/bench/by_hand.py [MODEL ...] [--batch 8] [--rounds 3] [--seconds 10]     on CPUs, fp32, channels first
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
import torchvision

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 5
LEAST_STEPS = 8
ALIKE = 0.05


def by_hand(model_name: str, batch: int, seconds: float) -> float:
    """As one would write it: nothing of the advisor's, neither its trainer nor its recorder."""
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
    """In a process of its own, as each of bench's settings is."""
    command = [sys.executable, __file__, model, f"--batch={batch}", f"--seconds={seconds}", "--loop"]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def by_bench(model: str, batch: int, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "advisor.cli", "bench", f"--model={model}", f"--batch={batch}", "--device=cpu"]
        command += ["--precisions=fp32", "--layout=first", "--no-sweep", "--devices=1", f"--seconds={seconds}"]
        command += ["--format=json", f"--run-dir={folder}"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    (cell,) = json.loads(done.stdout)["cells"]
    return float(cell["images_per_s"]["value"])


def compare(model: str, batch: int, seconds: float, rounds: int) -> bool:
    """Whether the rounds, by the median of their ratios, are alike."""
    ratios = []
    for number in range(rounds):
        hand, bench = by_hand_apart(model, batch, seconds), by_bench(model, batch, seconds)
        ratios.append(bench / hand)
        print(f"{model}, batch {batch}, round {number + 1}: by hand {hand:.2f} images/s, bench {bench:.2f}", flush=True)
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    print(
        f"{model}, batch {batch}: bench makes {median(ratios):.3f} of what a loop by hand does ({spread})", flush=True
    )
    return abs(median(ratios) - 1) <= ALIKE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["resnet18", "resnet50"])
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.loop:
        print(by_hand(told.models[0], told.batch, told.seconds))
        return
    alike = [compare(model, told.batch, told.seconds, told.rounds) for model in told.models]
    sys.exit(0 if all(alike) else 1)


if __name__ == "__main__":
    main()
