"""A trainer that holds its own optimizer and simulates a GPU out-of-memory error in the third step, in the part named by the argument."""

import sys

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MESSAGE = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 14.75 GiB of which 57.06 MiB is free. Including "
    "non-PyTorch memory, this process has 14.68 GiB memory in use. Of the allocated memory 14.32 GiB is allocated by PyTorch, and "
    "228.27 MiB is reserved by PyTorch but unallocated."
)
STEPS = 3


class Full(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        raise torch.OutOfMemoryError(MESSAGE)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 1)
        self.full = ""

    def forward(self, x):
        if self.full == "forward":
            raise torch.OutOfMemoryError(MESSAGE)
        return Full.apply(self.layer(x)) if self.full == "backward" else self.layer(x)


class Adam(torch.optim.Adam):
    full = ""

    def step(self, closure=None):
        if self.full == "optimizer":
            raise torch.OutOfMemoryError(MESSAGE)
        return super().step(closure)


class Trainer:
    def __init__(self):
        torch.set_num_threads(1)
        self.model = Net()
        self.optimizer = Adam(self.model.parameters())
        self.loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.randn(64, 1)), batch_size=8)

    def fit(self, full):
        for step, (x, y) in enumerate(self.loader, start=1):
            if step == STEPS:
                self.model.full = self.optimizer.full = full
            self.train(x, y)

    def train(self, x, y):
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()


def work(rank, full):
    Trainer().fit(full)


if __name__ == "__main__":
    if sys.argv[2:] == ["spawned"]:
        mp.spawn(work, (sys.argv[1],), nprocs=1)
    else:
        Trainer().fit(sys.argv[1])
