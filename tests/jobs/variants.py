"""One small training in the usual styles of loops; the style is the first argument."""

import contextlib
import gc
import itertools
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

STEPS = 12


class Broken(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        if index == 40:
            raise KeyError("no such picture")
        return torch.zeros(8), torch.zeros(1)


def pieces(data=None, **loader):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    data = data or TensorDataset(torch.randn(STEPS * 8, 8), torch.randn(STEPS * 8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01), DataLoader(data, batch_size=8, **loader)


def plain(**loader):
    model, optimizer, data = pieces(**loader)
    for x, y in data:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def persistent():
    model, optimizer, data = pieces(num_workers=1, persistent_workers=True)
    for _ in range(3):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()


def served():
    """Two loaders, each with a worker forked by the fork server."""
    options = {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "forkserver"}
    model, optimizer, data = pieces(**options)
    others = DataLoader(data.dataset, batch_size=16, **options)
    for _ in range(2):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        with torch.no_grad():
            for x, _y in others:
                model(x)


def accumulation():
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
    model, optimizer, data = pieces()
    wrapped = DistributedDataParallel(model)
    for number, (x, y) in enumerate(data):
        last = number % 4 == 3
        with contextlib.nullcontext() if last else wrapped.no_sync():
            nn.functional.mse_loss(wrapped(x), y).backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()


def gathered(persistent):
    """Four micro-batches a step, three and a half steps an epoch: the last gradients of an epoch carry over into the next."""
    data = TensorDataset(torch.randn(14 * 8, 8), torch.randn(14 * 8, 1))
    model, optimizer, data = pieces(data, num_workers=2, persistent_workers=persistent)
    done = 0
    for _ in range(4):
        for x, y in data:
            time.sleep(0.03)  # steps of more than 100 ms are clocked at first
            nn.functional.mse_loss(model(x), y).backward()
            done += 1
            if done % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()


def pinned(workers, broken=-1):
    """Simulates pinned memory without an accelerator: the CPU stands for one, copying for pinning. Tensor `broken` cannot be pinned."""
    device, count = torch.device("cpu"), itertools.count()
    torch.accelerator.is_available = lambda *_: True
    torch.accelerator.current_accelerator = lambda *_: device
    torch.accelerator.current_device_index = lambda: 0
    torch.accelerator.set_device_index = lambda _: None

    def pin_memory(tensor, *_):
        if next(count) == broken:
            raise RuntimeError("this cannot be pinned")
        return tensor.clone()

    torch.Tensor.pin_memory = pin_memory
    model, optimizer, data = pieces(pin_memory=True, num_workers=workers)
    for x, y in data:
        time.sleep(0.03)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())


def scaler():
    model, optimizer, data = pieces()
    scale = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, (x, y) in enumerate(data):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        scale.scale(loss * float("inf") if number % 4 == 1 else loss).backward()
        scale.step(optimizer)
        scale.update()


def memory():
    model, optimizer, _ = pieces()
    x, y = torch.randn(8, 8), torch.randn(8, 1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def short():
    """Steps of a fraction of a millisecond, interrupted by epochs, evaluation, collections and a checkpoint."""
    model, optimizer, _ = pieces()
    data = DataLoader(TensorDataset(torch.randn(804, 8), torch.randn(804, 1)), batch_size=8)
    for epoch in range(5):
        for number, (x, y) in enumerate(data):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if number % 40 == 39:
                gc.collect()
        with torch.no_grad():
            for x, _y in data:
                model(x)
        if epoch == 2:
            torch.save(model.state_dict(), os.devnull)


def shortest():
    """Steps that are thinned once their marks have passed a tiny budget, with epochs, collections and checkpoints."""
    model, optimizer, _ = pieces()
    data = DataLoader(TensorDataset(torch.randn(4004, 8), torch.randn(4004, 1)), batch_size=8)
    for _ in range(24):
        for number, (x, y) in enumerate(data):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            if number % 150 == 149:
                torch.save(model.state_dict(), os.devnull)
            if number % 200 == 199:
                gc.collect()


def first_only(**workers):
    """`next(iter(loader))` for each step: the previous iterator is freed, and the next one often has its address."""
    model, optimizer, _ = pieces()
    data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8, **workers)
    for _ in range(200):
        x, y = next(iter(data))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def remade():
    model, optimizer, data = pieces()
    for _ in range(4):
        for x, y in data:
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
        # as libraries do: a new loader for each evaluation, gradients on
        for x, _y in DataLoader(data.dataset, batch_size=16):
            model(x)


def broken():
    plain(data=Broken(), num_workers=1)


def killed(pause_s):
    model, optimizer, data = pieces()
    for number, (x, y) in enumerate(data):
        time.sleep(pause_s)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        before_ns = time.perf_counter_ns()
        optimizer.step()
        if number == STEPS - 2:
            print(before_ns, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    {
        "plain": plain,
        "workers": lambda: plain(num_workers=2),
        "persistent": persistent,
        "served": served,
        "accumulation": accumulation,
        "gathered": lambda: gathered(persistent=False),
        "gathered by workers that live on": lambda: gathered(persistent=True),
        "pinned": lambda: pinned(*map(int, sys.argv[2:])),
        "scaler": scaler,
        "memory": memory,
        "short": short,
        "shortest": shortest,
        "first-only": first_only,
        "first-only-persistent": lambda: first_only(num_workers=1, persistent_workers=True),
        "remade": remade,
        "broken": broken,
        "killed": lambda: killed(0.03),
        "killed in short steps": lambda: killed(0.0),
    }[sys.argv[1]]()
