"""A small DDP training with one fault of choice. Under torchrun, or alone as a single process."""

import argparse
import logging
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RANK = int(os.environ.get("RANK", "0"))


def burn(ms: float) -> None:
    """Compute for so long: a transform, not a sleep."""
    end = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < end:
        pass


class Pictures(Dataset):
    def __init__(self, options: argparse.Namespace) -> None:
        self.transform_ms = options.transform
        self.slow_ms = options.slow_data if RANK == 1 else 0.0
        self.files = sorted(Path(options.files).iterdir())[RANK::2] if options.files else []
        self.length = len(self.files) or 100_000

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        picture = torch.full((3, 32, 32), (index % 7) / 7)
        if self.files:
            picture[0, 0, 0] = self.files[index].read_bytes()[-1] / 255
        if self.transform_ms:
            burn(self.transform_ms)
        if self.slow_ms:
            time.sleep(self.slow_ms / 1000)
        return picture, index % 10


def network(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


def write_log(path: Path, loss: torch.Tensor, ms: float) -> None:
    """A logger that is slow the way loggers are: many lines, each flushed."""
    end = time.perf_counter() + ms / 1000
    with path.open("a") as file:
        while time.perf_counter() < end:
            file.write(f"loss {loss.item()}\n")
            file.flush()


def extra_work(ms: float) -> torch.Tensor:
    """Compute that only one rank does."""
    end, square = time.thread_time_ns() + ms * 1e6, torch.rand(128, 128)
    while time.thread_time_ns() < end:
        square = torch.tanh(square @ square)
    return square.mean() * 0


def stuck_in_user_code() -> None:
    while True:
        signal.pause()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--width", type=int, default=24)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--files")
    parser.add_argument("--transform", type=float, default=0.0, help="ms of CPU per sample")
    parser.add_argument("--slow-data", type=float, default=0.0, help="ms of sleep per sample on rank 1")
    parser.add_argument("--slow-compute", type=float, default=0.0, help="ms of CPU per step on rank 1")
    parser.add_argument("--quota-group", type=Path, help="rank 1 moves itself into this control group")
    parser.add_argument("--checkpoint-every", type=int, default=0)
    parser.add_argument("--write-log", type=float, default=0.0, help="ms between steps")
    parser.add_argument("--pause", type=float, default=0.0, help="ms of sleep between steps")
    parser.add_argument("--evaluate-every", type=int, default=0)
    parser.add_argument("--hang-at", type=int, default=0)
    parser.add_argument("--kill-at", type=int, default=0)
    return parser.parse_args()


def save(model: nn.Module, path: Path) -> None:
    with path.open("wb") as file:
        torch.save({"model": model.state_dict(), "ballast": torch.zeros(3_000_000)}, file)
        file.flush()
        os.fsync(file.fileno())


def after_step(
    number: int, model: nn.Module, held_out: DataLoader, loss: torch.Tensor, options: argparse.Namespace
) -> None:
    if options.write_log:
        write_log(options.out / f"log{RANK}.txt", loss, options.write_log)
    if options.pause:
        time.sleep(options.pause / 1000)
    if options.checkpoint_every and number % options.checkpoint_every == 0:
        save(model, options.out / f"checkpoint{RANK}.pt")
    if options.evaluate_every and number % options.evaluate_every == 0:
        with torch.no_grad():
            for _, (x, _y) in zip(range(6), held_out, strict=False):
                model(x)
    if options.hang_at == number and RANK == 1:
        stuck_in_user_code()
    if options.kill_at == number and RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    if options.quota_group and RANK == 1:
        (options.quota_group / "cgroup.procs").write_text(str(os.getpid()))
    data = DataLoader(Pictures(options), batch_size=options.batch, num_workers=options.workers)
    held_out = DataLoader(Pictures(options), batch_size=options.batch)
    plain = network(options.width, options.hidden)
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    number = 0
    while number < options.steps:
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            if options.slow_compute and RANK == 1:
                loss = loss + extra_work(options.slow_compute)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            number += 1
            after_step(number, plain, held_out, loss, options)
            if number >= options.steps:
                break
    logging.info("done")
    if dist.is_initialized():
        # together: a rank whose peer has left first is aborted by gloo's own threads now and then (torch 2.15, also without the advisor)
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
