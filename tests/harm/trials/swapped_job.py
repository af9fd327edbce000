"""A training job that says all it knows of itself, as it is or with the options of its loaders exchanged every few steps.

In the second case the recorder is in it, and what that has seen goes to a file.
"""

import gc
import hashlib
import json
import multiprocessing
import random
import sys
import threading
import traceback
import warnings
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

VARIANTS = ({"num_workers": 1, "multiprocessing_context": "fork"}, {"num_workers": 3, "prefetch_factor": 1})
EPOCHS = 3
SWAPPED = len(sys.argv) > 1


class Nowhere:
    """In place of the finders that wait for a module."""

    def __init__(self, *_):
        pass

    def find_spec(self, *_):
        return None


class Data(Dataset):
    def __init__(self, broken=-1):
        self.broken = broken

    def __len__(self):
        return 128

    def __getitem__(self, index):
        if index == self.broken:
            warnings.warn("a broken sample comes", stacklevel=3)
            raise ValueError("a broken sample")
        return torch.full((4,), index / 128), index


def initialise(worker):
    """Notes for which loader this worker is, as the recorder knows it."""
    if SWAPPED:
        from rn50_advisor.probes.rank.workers.worker_batches import own_loader

        with Path(sys.argv[1], "loaders").open("a") as file:
            file.write(f"{own_loader()}\n")


def install():
    from rn50_advisor.probes.rank import install
    from rn50_advisor.probes.rank.recorder import Recorder

    variants = [[{"kind": "call", "callable": "DataLoader", "arguments": options}] for options in VARIANTS]
    live = {"variants": [[], *variants], "from_step": 4, "block_steps": 3, "order": [1, 0, 2, 0]}
    Path(sys.argv[1], "trial.json").write_text(json.dumps({"changes": [], "live": live}))
    install.install(sys.argv[1], Nowhere)
    return next(item for item in gc.get_objects() if type(item) is Recorder)


def digest():
    told = (torch.get_rng_state().numpy().tobytes(), random.getstate(), np.random.get_state()[1].tobytes())
    return hashlib.sha256(repr(told).encode()).hexdigest()


def train(loader, model, optimizer):
    for epoch in range(EPOCHS):
        batches = iter(loader)
        for step, (x, index) in enumerate(batches):
            optimizer.zero_grad()
            loss = torch.nn.functional.dropout(model(x)).square().mean()
            loss.backward()
            optimizer.step()
            print(epoch, step, index.tolist(), loss.item().hex(), batches._num_yielded, len(batches))
        print(digest(), len(multiprocessing.active_children()))


def main():
    recorder = install() if SWAPPED else None
    for seed in (torch.manual_seed, random.seed, np.random.seed):
        seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    train(DataLoader(Data(), 4, shuffle=True, worker_init_fn=initialise), model, optimizer)
    train(DataLoader(Data(), 8, shuffle=True, num_workers=2, worker_init_fn=initialise), model, optimizer)
    if SWAPPED:
        swap = recorder.trial._swap
        swap.use(None)
    try:
        for _ in DataLoader(Data(broken=77), 4):
            pass
    except ValueError:
        print(traceback.format_exc())
    names = {thread.name for thread in threading.enumerate()} - {
        "QueueFeederThread"
    }  # these end when they have closed a queue
    print(type(next(iter(DataLoader(Data(), 4)))), sorted(names))
    if SWAPPED:
        report = {
            "loaders": recorder.loading.loaders.facts(recorder.account),
            "fetched": sorted(recorder.account.loaders),
            "errors": recorder.errors,
            "swap": swap.facts(),
            "steps": recorder.account.step,
            "trial": recorder.trial.facts(),
        }
        Path(sys.argv[1], "report").write_text(json.dumps(report, default=str))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
