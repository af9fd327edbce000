"""Loops that the recorder sees only in part: some steps with a backward pass, and then something else.

unseen_training.py KIND [STEPS] [BATCHES]: first STEPS plain steps (default 12), then KIND with BATCHES batches (default 400).
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 16


class Pictures(Dataset):
    def __init__(self, batches):
        self.batches = batches

    def __len__(self):
        return self.batches * BATCH

    def __getitem__(self, index):
        return torch.full((256,), float(index % 7)), index % 10


def compute(rounds=4):
    """Does work that leaves no mark, like a replayed graph."""
    made = torch.ones(300, 300)
    for _ in range(rounds):
        made = (made @ made).clamp(-1, 1)
    return made


class Training:
    def __init__(self, steps, batches):
        torch.manual_seed(0)
        self.steps, self.batches = steps, batches
        self.model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.data = DataLoader(Pictures(steps + batches), batch_size=BATCH)

    def train(self, pictures, labels):
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(pictures), labels).backward()
        compute()
        self.optimizer.step()

    def warm_up(self):
        """Trains `self.steps` steps and returns the iterator."""
        fetched = iter(self.data)
        for _ in range(self.steps):
            self.train(*next(fetched))
        return fetched


def replay(job):
    for _ in job.warm_up():
        compute()


def replay_from_another_loader(job):
    job.warm_up()
    for _ in DataLoader(Pictures(job.batches), batch_size=BATCH):
        compute()


def replay_in_memory(job):
    job.warm_up()
    for _ in range(job.batches):
        compute()


def autograd_grad(job):
    """Trains with `torch.autograd.grad` and a manual update: neither has a mark."""
    parameters = list(job.model.parameters())
    for pictures, labels in job.warm_up():
        compute()
        found = torch.autograd.grad(nn.functional.cross_entropy(job.model(pictures), labels), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.sub_(gradient, alpha=0.01)


def inference(job):
    """A test phase over another loader, whose batches are fetched with gradients enabled, as is usual."""
    job.warm_up()
    job.model.eval()
    right = 0
    for pictures, labels in DataLoader(Pictures(job.batches), batch_size=BATCH):
        compute()
        with torch.no_grad():
            right += int((job.model(pictures).argmax(1) == labels).sum())
    print("right:", right)


def train_accuracy(job):
    """A test phase over the training loader."""
    rest = job.warm_up()
    job.model.eval()
    for pictures, _ in rest:
        compute()
        with torch.no_grad():
            job.model(pictures)


def resume(job):
    """Resumes in the middle of an epoch: fetches and discards the batches of earlier steps."""
    for number, (pictures, labels) in enumerate(job.data):
        if number < job.batches:
            continue
        job.train(pictures, labels)


KINDS = {
    each.__name__: each
    for each in (
        replay,
        replay_from_another_loader,
        replay_in_memory,
        autograd_grad,
        inference,
        train_accuracy,
        resume,
    )
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    steps, batches = (int(given) for given in (*sys.argv[2:], *("12", "400")[len(sys.argv) - 2 :]))
    KINDS[sys.argv[1]](Training(steps, batches))
