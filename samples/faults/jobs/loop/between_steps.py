"""Trains a small net and does something between its steps: logs, waits, saves, evaluates, collects garbage, forgets to free."""

from __future__ import annotations

import argparse
import gc
import io
import os
import time
from pathlib import Path

import shared.group
import shared.models
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))


class Node:
    """An application's record; many of them make garbage collections long."""

    def __init__(self) -> None:
        self.itself, self.fields = self, {"a": [0], "b": [1]}


def write_log(path: Path, loss: Tensor, ms: float) -> None:
    """Writes for `ms` in the way of slow loggers: many lines, each flushed."""
    end = time.perf_counter() + ms / 1000
    with path.open("a") as file:
        while time.perf_counter() < end:
            file.write(f"loss {loss.item()}\n")
            file.flush()


def save(model: nn.Module, path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": torch.zeros(megabytes << 18)}, file)
        file.flush()
        os.fsync(file.fileno())


def save_through_memory(model: nn.Module, path: Path, megabytes: int) -> None:
    """Saves through a buffer in memory, as libraries for any file system do; each write returns when the disk has the data."""
    made = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": torch.zeros(megabytes << 18)}, made)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags | os.O_DSYNC)) as file:
        file.write(made.getvalue())


def check(model: nn.Module, pictures: Tensor) -> None:
    """Evaluates a few held-out pictures, all at once."""
    model.eval()
    with torch.no_grad():
        right = model(pictures).argmax(1)
    model.train()
    print(f"{right.float().mean():.3f}", flush=True)


def evaluate(model: nn.Module, held_out: DataLoader, batches: int) -> None:
    model.eval()
    with torch.no_grad():
        for _, (x, _y) in zip(range(batches), held_out, strict=False):
            model(x)
    model.train()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=24)
    add("--write-log", type=float, default=0.0, metavar="MS")
    add("--pause", type=float, default=0.0, metavar="MS")
    add("--every", type=int, default=1, help="log or pause only after every so many steps")
    add("--checkpoint-every", type=int, default=0)
    add("--checkpoint-megabytes", type=int, default=12)
    add("--through-memory", action="store_true", help="the checkpoint is made in memory, and written then")
    add("--evaluate-every", type=int, default=0)
    add("--check", type=int, default=0, metavar="PICTURES", help="a small evaluation without a loader")
    add("--evaluate-batches", type=int, default=6)
    add("--records", type=int, default=0, help="objects that the garbage collector looks through")
    add("--freeze", action="store_true", help="keep the garbage collector from them")
    add("--collect-every", type=int, default=0)
    add("--collect-rank", type=int, default=-1, metavar="RANK", help="only this one collects")
    add("--anomaly", type=int, default=0, metavar="STEPS", help="look for NaN in so many steps, as after a bad run")
    add("--retain", type=int, default=0, metavar="KB", help="kept for ever, each step")
    return parser.parse_args()


def after_step(step: int, model: nn.Module, held_out: DataLoader, loss: Tensor, options: argparse.Namespace) -> None:
    if options.write_log and step % options.every == 0:
        write_log(options.out / f"log{RANK}.txt", loss, options.write_log)
    if options.pause and step % options.every == 0:
        time.sleep(options.pause / 1000)
    if options.checkpoint_every and step % options.checkpoint_every == 0:
        write = save_through_memory if options.through_memory else save
        write(model, options.out / f"checkpoint{RANK}.pt", options.checkpoint_megabytes)
    if options.collect_every and step % options.collect_every == 0 and options.collect_rank in (-1, RANK):
        gc.collect()
    if options.check and step % options.every == 0:
        check(model, torch.rand(options.check, 3, 32, 32))
    if options.evaluate_every and step % options.evaluate_every == 0:
        evaluate(model, held_out, options.evaluate_batches)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    data = DataLoader(memory, batch_size=options.batch, shuffle=True)
    held_out = DataLoader(memory, batch_size=options.batch)
    plain = shared.models.small_cnn(options.width)
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    records = [Node() for _ in range(options.records)]  # application objects that live as long as the training
    if options.freeze:
        gc.freeze()
    history, step = [], 0
    while step < options.steps:
        for x, y in data:
            torch.autograd.set_detect_anomaly(step < options.anomaly)
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if options.retain:
                history.append(torch.ones(options.retain << 8))
            after_step(step, plain, held_out, loss, options)
            if step >= options.steps:
                break
    shared.group.leave()
    records.clear()


if __name__ == "__main__":
    main()
