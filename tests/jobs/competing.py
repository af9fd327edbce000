"""Two networks compete, in a style that is the first argument. Prints a sum over their weights, and the next random number.

loader: batches of a DataLoader, the pictures are not detached; memory: no loader; critics: the source is trained in each fifth step only;
sound: detached and frozen; accumulating: one network, whose gradients of four batches add up; losses: one network, with a backward pass
for each of three losses; views: the same for losses of batches of their own.
"""

import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 800
style = sys.argv[1]
torch.manual_seed(3)
torch.set_num_threads(1)
source, judge = nn.Linear(16, 64), nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1))
for_source, for_judge = (torch.optim.Adam(net.parameters(), lr=0.01) for net in (source, judge))
real = torch.randn(STEPS * 8, 64)
loader = DataLoader(TensorDataset(real), batch_size=8)
batches = ((rows,) for rows in real.split(8)) if style == "memory" else loader
every = {"critics": 5, "accumulating": 4}.get(style, 1)

for number, (rows,) in enumerate(batches, 1):
    if style == "accumulating":
        judge(rows).square().mean().backward()
        if number % every == 0:
            for_judge.step()
            for_judge.zero_grad()
        continue
    if style in ("losses", "views"):
        for_judge.zero_grad()
        scores = judge(rows)
        for power in (1, 2, 3):
            scores.pow(power).mean().backward(retain_graph=True)  # for each loss
            if style == "views":
                scores = judge(rows + power)
        for_judge.step()
        continue
    made = source(torch.randn(8, 16))
    for_judge.zero_grad()
    (judge(made.detach() if style == "sound" else made).mean() - judge(rows).mean()).backward()  # goes on
    for_judge.step()
    if number % every == 0:
        for_source.zero_grad()
        judge.requires_grad_(style != "sound")
        (-judge(source(torch.randn(8, 16))).mean()).backward()  # goes through
        judge.requires_grad_(True)
        for_source.step()

print(sum(p.double().abs().sum().item() for p in [*source.parameters(), *judge.parameters()]), torch.rand(()).item())
