"""One small training on pictures, with transforms in the styles that datasets use; prints everything that watching could change.

`pipelines.py STYLE WORKERS FOLDER [broken]`: FOLDER holds an ImageFolder; with `broken` the last transform fails on one sample.
"""

import functools
import hashlib
import random
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset
from torchvision import transforms as v1
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

FAILS_AT = int(sys.argv[4]) if len(sys.argv) > 4 else -1


class Slow:
    """A user's own transform; draws from all three random generators."""

    def __init__(self):
        self.calls = 0

    def __call__(self, picture):
        self.calls += 1
        if self.calls == FAILS_AT:
            raise ValueError("this picture cannot be transformed")
        noise = np.random.rand() + random.random() + torch.rand(1).item()
        for _ in range(300):
            noise = noise * 0.999 + 0.001
        return picture


def hue(picture):
    return picture


class OwnCompose:
    def __init__(self, *steps):
        self.transforms = steps

    def __call__(self, picture):
        for step in self.transforms:
            picture = step(picture)
        return picture


class Pictures(Dataset):
    def __init__(self, folder, transform=None):
        self.files = sorted(Path(folder).rglob("*.jpg"))
        self.transform = transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        picture = Image.open(self.files[index]).convert("RGB")
        if self.transform is not None:
            picture = self.transform(picture)
        return picture, index


class Together(Pictures):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Stream(IterableDataset):
    def __init__(self, folder, transform):
        self.inner = Pictures(folder, transform)

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        step = info.num_workers if info else 1
        yield from (self.inner[i] for i in range(info.id if info else 0, len(self.inner), step))


def steps(kind):
    last = [kind.ToTensor()] if kind is v1 else [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    return [kind.RandomResizedCrop(32), kind.RandomApply([Slow()], p=0.7), kind.RandomHorizontalFlip(), *last, Slow()]


def halves(folder):
    whole = ImageFolder(folder, v1.Compose(steps(v1)))
    return ConcatDataset([Subset(whole, range(0, len(whole), 2)), Subset(whole, range(1, len(whole), 2))])


def scripted():
    resize = torch.jit.script(nn.Sequential(v1.Resize([32, 32])))
    return OwnCompose(v1.PILToTensor(), resize, v1.ConvertImageDtype(torch.float))


def own():
    return OwnCompose(v1.Resize((32, 32)), v1.Lambda(hue), functools.partial(hue), v1.ToTensor(), Slow())


def sequence():
    return nn.Sequential(v2.PILToTensor(), v2.Resize((32, 32)), v2.ToDtype(torch.float32))


DATASETS = {
    "plain": lambda folder: ImageFolder(folder, v1.Compose(steps(v1))),
    "v2": lambda folder: ImageFolder(folder, v2.Compose(steps(v2))),
    "sequential": lambda folder: ImageFolder(folder, sequence()),
    "scripted": lambda folder: ImageFolder(folder, scripted()),
    "own": lambda folder: Pictures(folder, own()),
    "single": lambda folder: Pictures(folder, Single()),
    "together": lambda folder: Together(folder, v1.Compose(steps(v1))),
    "stream": lambda folder: Stream(folder, v1.Compose(steps(v1))),
    "halves": halves,
}


class Single:
    def __init__(self):
        self.slow = Slow()

    def __call__(self, picture):
        return self.slow(v1.functional.to_tensor(picture.resize((32, 32))))


def main(style, workers, folder):
    torch.manual_seed(5), random.seed(5), np.random.seed(5)
    torch.set_num_threads(1)
    data = DATASETS[style](folder)
    before = repr([type(value) for value in vars(data).values()])
    loader = DataLoader(
        data, batch_size=4, shuffle=style != "stream", num_workers=workers, persistent_workers=workers > 0
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = hashlib.sha256()
    for _ in range(6):
        for x, y in loader:
            nn.functional.cross_entropy(model(x.float()), y % 2).backward()
            optimizer.step()
            optimizer.zero_grad()
            seen.update(x.numpy().tobytes())
            print(y.tolist())
    assert before == repr([type(value) for value in vars(data).values()])
    leftover = [
        c
        for c in (v1.Compose, v2.Compose, nn.Sequential, OwnCompose, ImageFolder)
        if {"transforms", "loader"} & vars(c).keys()
    ]
    print(seen.hexdigest(), leftover, random.random(), np.random.rand(), torch.rand(1).item())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
