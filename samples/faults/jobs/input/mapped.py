"""Trains on a Hugging Face data set, with or without an indices mapping, of rows or of lists of rows."""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from pathlib import Path

import torch
from shared.extra_work import extra_work
from torch import nn
from torch.utils.data import DataLoader

if importlib.util.find_spec("datasets") is None:
    sys.path.append(str(Path(__file__).parent / "hugging"))
from datasets import Dataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=400)
    add("--rows", type=int, default=40_000)
    add("--width", type=int, default=16)
    add("--batch", type=int, default=1024)
    add("--workers", type=int, default=0)
    add("--compute", type=float, default=0.0, help="ms a step, beside the model's own")
    add("--order", choices=("mapped", "flat", "loader"), default="mapped", help="who shuffles, and whether rows move")
    add("--lists", type=int, default=0, metavar="N", help="rows of N lists of the width each, instead of one")
    add("--stored", choices=("lists", "flat"), default="lists", help="how rows of lists are stored")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shape = (options.lists, options.width) if options.lists else (options.width,)
    rows = torch.randn(options.rows, *shape)
    if options.stored == "flat":
        rows = rows.flatten(1)
    data = Dataset.from_dict({"row": rows.tolist(), "label": [n % 10 for n in range(options.rows)]})
    if options.order != "loader":
        data = data.shuffle(seed=0)
    if options.order == "flat":
        data = data.flatten_indices()
    data = data.with_format("torch")
    loader = DataLoader(data, batch_size=options.batch, shuffle=True, num_workers=options.workers)
    model = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for batch in loader:
            loss = nn.functional.cross_entropy(model(batch["row"]), batch["label"])
            if options.compute:
                loss = loss + extra_work(options.compute)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
