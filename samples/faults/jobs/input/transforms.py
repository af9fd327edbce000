"""Trains a small net on pictures that go through a chain of transforms, one of which may cost more than all the others."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import shared.group
import shared.models
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder


def compute(picture: np.ndarray, ms: float) -> np.ndarray:
    """Applies as many filter passes as fit into `ms` of CPU time."""
    end_ns = time.thread_time_ns() + ms * 1e6
    while time.thread_time_ns() < end_ns:
        picture = (picture + np.roll(picture, 1, -1)) / 2
    return picture


class Sharpen:
    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        return compute(picture, self.ms)


class Crop(Sharpen):
    def __call__(self, picture: np.ndarray) -> np.ndarray:
        return compute(picture[:, :32, :32], self.ms)


class Jitter(Sharpen):
    def __call__(self, picture: np.ndarray) -> np.ndarray:
        return compute(picture, self.ms) * 1.01


class Pictures(Dataset):
    def __init__(self, length: int, transform: transforms.Compose) -> None:
        self.length, self.transform = length, transform
        self.picture = np.random.default_rng(0).random((3, 40, 40), dtype=np.float32)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.picture), index % 10


def dataset(options: argparse.Namespace) -> Dataset:
    if not options.images:
        steps = [Crop(options.usual / 2), Sharpen(options.costly), Jitter(options.usual / 2), torch.from_numpy]
        return Pictures(options.pictures, transforms.Compose(steps))
    steps = [transforms.RandomResizedCrop(options.size), transforms.RandomHorizontalFlip()]
    if options.kernel:
        steps.append(transforms.GaussianBlur(options.kernel))
    steps += [transforms.ToTensor(), transforms.Normalize([0.5] * 3, [0.25] * 3)]
    return ImageFolder(Path(options.images) / "train", transforms.Compose(steps))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=100)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=48)
    add("--pictures", type=int, default=100_000)
    add("--workers", type=int, default=0)
    add("--usual", type=float, default=0.5, metavar="MS", help="CPU time of a picture in the other transforms")
    add("--costly", type=float, default=0.0, metavar="MS", help="CPU time of a picture in one of them")
    add("--images", help="folder of pictures to read instead, for torchvision's transforms")
    add("--size", type=int, default=160, help="of the pictures after cropping")
    add("--kernel", type=int, default=0, help="of the blur; 0: none")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    pictures = dataset(options)
    sampler = DistributedSampler(pictures) if dist.is_initialized() else None
    data = DataLoader(
        pictures,
        batch_size=options.batch,
        sampler=sampler,
        shuffle=sampler is None,
        drop_last=True,
        num_workers=options.workers,
        persistent_workers=options.workers > 0,
    )
    model = shared.models.small_cnn(options.width)
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    while step < options.steps:
        for pictures_now, labels in data:
            # the net expects 32x32 images
            small = nn.functional.interpolate(pictures_now, (32, 32))
            loss = nn.functional.cross_entropy(model(small), labels % 10)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
