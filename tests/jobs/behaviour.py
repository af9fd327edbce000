"""Uses DataLoaders in the usual ways and prints everything that a job can observe: samples, random numbers, errors.

The file in the argument gets the threads and modules of a worker.
"""

import gc
import hashlib
import json
import random
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

COUNT = 24


def sample(index):
    """Returns a number from every random generator that a dataset may use."""
    return torch.tensor([index, random.random(), np.random.rand(), torch.rand(1).item()], dtype=torch.float64)


class Pictures(Dataset):
    def __init__(self, broken=-1):
        self.broken = broken

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if index == self.broken:
            try:
                {}["no such picture"]
            except KeyError as error:
                raise ValueError("a broken picture") from error
        return sample(index)


class Stream(IterableDataset):
    def __init__(self, broken=-1):
        self.broken = broken

    def __iter__(self):
        info = get_worker_info()
        for index in range(info.id if info else 0, COUNT, info.num_workers if info else 1):
            if index == self.broken:
                raise ValueError("a broken record")
            yield sample(index)


class About(Dataset):
    """Samples that hold the number of threads and the modules of a worker."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return json.dumps([threading.active_count(), sorted(sys.modules)])


def dice():
    parts = (random.getstate(), np.random.get_state(), torch.get_rng_state().tolist())
    return [hashlib.sha256(repr(part).encode()).hexdigest()[:16] for part in parts]


def opened(data):
    """Returns the loader's iterator; prints what a job can observe before the first batch. Workers start here."""
    batches = iter(data)
    length = None if isinstance(data.dataset, IterableDataset) else len(batches)
    print(type(batches), length, [worker.is_alive() for worker in getattr(batches, "_workers", ())])
    return batches


def train(data, model, optimizer):
    for batch in opened(data):
        optimizer.zero_grad()
        model(batch[:, 1:].float()).sum().backward()
        optimizer.step()
        print([[value.hex() for value in row] for row in batch.tolist()])


def main(path):
    torch.set_num_threads(1)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    # the first backward passes happen before workers are forked, and after
    for kind in (Pictures, Stream):
        for workers, context in ((0, None), (2, "fork"), (1, "spawn"))[: 3 if kind is Pictures else 2]:
            for setter in (random.seed, np.random.seed, torch.manual_seed):
                setter(7)
            print(kind.__name__, workers, context)
            shuffle = kind is Pictures or None
            data = DataLoader(
                kind(), batch_size=4, shuffle=shuffle, num_workers=workers, multiprocessing_context=context
            )
            train(data, model, optimizer)
            print(dice())
            if context == "spawn":
                continue
            try:
                train(DataLoader(kind(broken=9), batch_size=4, num_workers=workers), model, optimizer)
            except ValueError:
                print(traceback.format_exc())
            gc.collect()  # else the next worker inherits the rest of this loader, and complains
    loader = DataLoader(About(), batch_size=None, num_workers=1, multiprocessing_context="fork")
    Path(path).write_text(next(iter(loader)))


if __name__ == "__main__":
    main(sys.argv[1])
