"""A training that uses `eval()` mode differently in each style; the style is the first argument. Prints its last loss.

memory: a function evaluates on tensors every tenth step; graphs: over a loader, and records gradients; late: over a loader, with
`no_grad` in the loop only; teacher: a model that is not trained is put into that mode each step; frozen: the model is trained in it;
rollout: the model generates its training data in it; twice: two evaluations follow each other in every step, as in full-batch training of
graphs.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 60
torch.manual_seed(3)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.1), nn.Linear(64, 4))
teacher = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
inputs, targets = torch.randn(512, 16), torch.arange(512) % 4
held_out = DataLoader(TensorDataset(inputs[:64], targets[:64]), batch_size=8)


@torch.no_grad()
def estimate():
    model.eval()
    for _ in range(20):
        nn.functional.cross_entropy(model(inputs), targets).item()
    model.train()


def validate(style):
    model.eval()
    losses = []
    for x, y in held_out:
        with torch.set_grad_enabled(style == "graphs"):
            losses.append(nn.functional.cross_entropy(model(x), y))
    model.train()
    return torch.stack(losses).mean().item()


def rollout():
    model.eval()
    with torch.no_grad():
        for _ in range(20):
            model(inputs)
    model.train()


@torch.no_grad()
def score(rows):
    model.eval()
    return nn.functional.cross_entropy(model(inputs[rows]), targets[rows]).item()


def train(style):
    loss = torch.zeros(())
    for step in range(STEPS):
        model.train()
        if style == "teacher":
            teacher.eval()
        if style == "frozen":
            model.eval()
        if style == "rollout" and step % 10 == 9:
            rollout()
        if style == "memory" and step % 10 == 9:
            estimate()  # the line of the loop
        if style in ("graphs", "late") and step % 10 == 9:
            validate(style)
        x = inputs[(8 * step) % 512 :][:8]
        wanted = teacher(x).softmax(1) if style == "teacher" else targets[(8 * step) % 512 :][:8]
        loss = nn.functional.cross_entropy(model(x), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if style == "twice":
            score(slice(0, 256))  # the first one
            score(slice(256, 512))  # the second one
    print(loss.item())


train(sys.argv[1])
