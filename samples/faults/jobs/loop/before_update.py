"""Trains a small net and does something between its backward pass and the update: clips, or logs and looks at the gradients."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import shared.group
import shared.models
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=24)
    add(
        "--hidden", type=int, default=0, help="a perceptron, which has many parameters for its work, instead of the net"
    )
    add("--clip", choices=("norm", "by-hand"))
    add("--write-norms", type=float, default=0.0, metavar="MS")
    add("--histograms", type=int, default=0, metavar="BINS")
    add("--wait", type=float, default=0.0, metavar="MS", help="as for an answer of a tracker's server")
    add("--every", type=int, default=1, help="look and log only in every so many steps")
    return parser.parse_args()


def clip_by_hand(parameters: Iterable[nn.Parameter], most: float) -> None:
    gradients = [p.grad for p in parameters if p.grad is not None]
    total = torch.stack([g.pow(2).sum() for g in gradients]).sum().sqrt()
    scale = float(most / (total + 1e-6))
    if scale < 1.0:
        for gradient in gradients:
            gradient.mul_(scale)


def write_norms(path: Path, model: nn.Module, ms: float) -> None:
    """Writes for `ms` in the way of slow loggers: many lines, each flushed."""
    end = time.perf_counter() + ms / 1000
    lines = [f"{name} {parameter.numel()}\n" for name, parameter in model.named_parameters()]
    with path.open("a") as file:
        while time.perf_counter() < end:
            for line in lines:
                file.write(line)
                file.flush()


def histograms(model: nn.Module, bins: int) -> str:
    """Returns a histogram of each parameter's gradient, counted in Python, as users do who want their own bin edges."""
    rows = {}
    for name, parameter in model.named_parameters():
        counts = [0] * bins
        for value in parameter.grad.flatten().tolist():
            counts[min(bins - 1, int(abs(value) * 1000))] += 1
        rows[name] = counts
    return json.dumps(rows)


def before_update(step: int, model: nn.Module, options: argparse.Namespace) -> None:
    if step % options.every:
        return
    if options.write_norms:
        write_norms(options.out / f"norms{RANK}.txt", model, options.write_norms)
    if options.histograms:
        histograms(model, options.histograms)
    if options.wait:
        time.sleep(options.wait / 1000)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    data = DataLoader(memory, batch_size=options.batch, shuffle=True)
    plain = shared.models.small_cnn(options.width)
    if options.hidden:
        hidden = options.hidden
        plain = nn.Sequential(
            nn.Flatten(),
            nn.Linear(3072, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 10),
        )
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for x, y in data:
            optimizer.zero_grad()
            loss: Tensor = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            if options.clip == "norm":
                nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            elif options.clip == "by-hand":
                clip_by_hand(model.parameters(), 0.01)
            before_update(step, plain, options)
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
