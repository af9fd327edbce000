"""Trains a net on several ranks, of which one is held up: by its data, by extra work in or between the steps, or by its control group."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import shared.group
import shared.models
import torch
import torch.distributed as dist
from shared.extra_work import extra_work
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

FILE_BYTES = 20_000


class Pictures(Dataset):
    def __init__(self, slow_ms: float, folder: Path | None, slow_from: int) -> None:
        self.slow_ms, self.root, self.slow_from = slow_ms, folder, slow_from
        self.files = sorted(folder.iterdir()) if folder else []
        self.pictures = torch.rand(512, 3, 32, 32)

    def __len__(self) -> int:
        return len(self.files) or 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.slow_ms and index >= self.slow_from:
            time.sleep(self.slow_ms / 1000)  # a slow mount
        picture = self.pictures[index % 512]
        if self.files:
            picture = picture * (self.files[index].read_bytes()[-1] / 255)
        return picture, index % 10


class Ballasted(nn.Module):
    """Adds parameters that are costly to exchange and cheap to compute."""

    def __init__(self, net: nn.Module, width: int) -> None:
        super().__init__()
        self.net, self.ballast = net, nn.Linear(width, width)

    def forward(self, pictures: Tensor) -> Tensor:
        return self.net(pictures) + self.ballast(pictures.new_zeros(1, self.ballast.in_features)).sum()


def written(folder: Path, count: int) -> Path:
    """Writes this rank's own pictures below this folder and returns their folder."""
    own = folder / f"pictures{dist.get_rank()}"
    own.mkdir()
    for number in range(count):
        (own / f"{number:05}.bin").write_bytes(os.urandom(FILE_BYTES))
    return own


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=24)
    add("--workers", type=int, default=0)
    add("--files", type=Path, metavar="FOLDER", help="each rank reads files that it has written below it")
    add("--slow-files", type=Path, metavar="FOLDER", help="the slow rank reads those that lie here instead")
    add("--slow-data", type=float, default=0.0, metavar="MS", help="a sample of the slow rank")
    add("--slow-compute", type=float, default=0.0, metavar="MS", help="a step of the slow rank")
    add("--slow-between", type=float, default=0.0, metavar="MS", help="after each update of the slow rank")
    add("--ballast", type=int, default=0, metavar="WIDTH", help="so many parameters more, squared")
    add("--resnet", action="store_true", help="with batch norm, whose buffers each forward waits for")
    add("--larger", type=int, default=0, help="samples more in each batch of the slow rank")
    add("--group", type=Path, help="the slow rank moves into this control group")
    add(
        "--turns",
        type=int,
        default=0,
        metavar="STEPS",
        help="after so many, another rank is the one that computes more",
    )
    add("--from-step", type=int, default=0)
    add("--slow-rank", type=int, default=1)
    return parser.parse_args()


def resnet() -> nn.Module:
    from torchvision.models import resnet18  # noqa: PLC0415 - takes 1.6 s of CPU time, and most of these jobs do not need it

    return resnet18(num_classes=10)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    slow = dist.get_rank() == options.slow_rank
    batch = options.batch + (options.larger if slow else 0)
    folder = options.slow_files if slow else None
    if folder is None and options.files:
        folder = written(options.files, options.steps * batch)
    pictures = Pictures(options.slow_data if slow else 0.0, folder, options.from_step * batch)
    data = DataLoader(pictures, batch_size=batch, num_workers=options.workers)
    net = resnet() if options.resnet else shared.models.small_cnn(options.width)
    model = DistributedDataParallel(Ballasted(net, options.ballast) if options.ballast else net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in zip(range(options.steps), data, strict=False):
        if slow and options.group and step == options.from_step:
            (options.group / "cgroup.procs").write_text(str(os.getpid()))
        loss = nn.functional.cross_entropy(model(x), y)
        turn = step // options.turns % dist.get_world_size() == dist.get_rank() if options.turns else slow
        if turn and options.slow_compute and step >= options.from_step:
            loss = loss + extra_work(options.slow_compute)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if slow and options.slow_between:
            extra_work(options.slow_between)
    shared.group.leave()


if __name__ == "__main__":
    main()
