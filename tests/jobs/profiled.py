"""A training that uses torch's profiler itself: from the start (`begins`) or the middle (`meets`). Prints counts of its own profile."""

import sys

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset


def main(style: str) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = DataLoader(TensorDataset(torch.randn(160, 3, 8, 8), torch.arange(160) % 4), batch_size=8)
    own = None
    if style == "begins":
        own = profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=13, warmup=1, active=2, repeat=1))
        own.start()
    for step, (x, y) in enumerate(data):
        if style == "meets" and step == 11:
            own = profile(activities=[ProfilerActivity.CPU])
            own.start()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if style == "begins":
            own.step()
        elif step == 12:
            own.stop()
    if style == "begins":
        own.stop()
    counts = {event.key: event.count for event in own.key_averages()}
    print(counts["aten::addmm"], counts["Optimizer.step#SGD.step"], "rn50-advisor step" in counts)


if __name__ == "__main__":
    main(sys.argv[1])
