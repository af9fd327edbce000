"""Trains on batches that do not come from torch's loaders, or from one in another thread. The packages are stand-ins of the same shape."""

import queue
import sys
import threading
import types
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 12


def data():
    return TensorDataset(torch.randn(STEPS * 8, 8), torch.randn(STEPS * 8, 1))


def package(name, **members):
    """Puts a package into `sys.modules`, as an import would."""
    parts = name.split(".")
    for depth in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:depth]), types.ModuleType(".".join(parts[:depth])))
    vars(sys.modules[name]).update(members)


class DALIGenericIterator:
    """One object for all epochs; yields lists with one dictionary per device."""

    def __init__(self):
        self.left = STEPS

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            self.left = STEPS
            raise StopIteration
        self.left -= 1
        return [{"data": torch.randn(8, 8), "label": torch.randn(8, 1)}]


class DALIClassificationIterator(DALIGenericIterator):
    pass


class EpochIterator(threading.Thread):
    """A thread that fills a queue, and the iterator over it."""

    def __init__(self, loader):
        super().__init__(daemon=True)
        self.loader = loader
        self.output_queue = queue.Queue(2)
        self.start()

    def run(self):
        for _ in range(STEPS):
            self.output_queue.put((torch.randn(8, 8), torch.randn(8, 1)))
        self.output_queue.put(None)

    def __iter__(self):
        return self

    def __next__(self):
        result = self.output_queue.get()
        if result is None:
            raise StopIteration
        return result


class Loader:
    def __iter__(self):
        return EpochIterator(self)


class Ahead:
    """A hand-written prefetcher: a thread iterates over a DataLoader, the loop takes its batches from a queue."""

    def __init__(self, loader):
        self.queue = queue.Queue(2)
        threading.Thread(target=self.fill, args=(loader,), daemon=True).start()

    def fill(self, loader):
        for batch in loader:
            self.queue.put(batch)
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


def train(batches, pick):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        for batch in batches():
            x, y = pick(batch)
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


def dali():
    package("nvidia.dali.plugin.pytorch", DALIGenericIterator=DALIGenericIterator)
    iterator = DALIClassificationIterator()
    train(lambda: iterator, lambda batch: (batch[0]["data"], batch[0]["label"]))


def ffcv():
    package("ffcv.loader.epoch_iterator", EpochIterator=EpochIterator)
    loader = Loader()
    train(lambda: loader, tuple)


def thread():
    loader = DataLoader(data(), batch_size=8, num_workers=1)
    train(lambda: Ahead(loader), tuple)


def stateful():
    sys.path.insert(0, str(Path(__file__).with_name("packages")))
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(data(), batch_size=8, num_workers=1)
    train(lambda: loader, tuple)


if __name__ == "__main__":
    {"dali": dali, "ffcv": ffcv, "thread": thread, "stateful": stateful}[sys.argv[1]]()
