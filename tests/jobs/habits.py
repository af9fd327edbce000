"""Waits for its loss in each step, under autocast, with a compiled part and workers that restart in each epoch. Prints what it observes.

Steps take more than 20 ms, so that each of them has its marks.
"""

import time

import torch
import torch._dynamo
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEPS = 40


class Pictures(Dataset):
    """Each sample says whether torch.Tensor's methods are unpatched in the process that made it."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        plain = all(type(getattr(torch.Tensor, name)).__name__ == "method_descriptor" for name in ("item", "to", "cpu"))
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 16, 16, generator=generator), torch.tensor(index % 4), plain


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Pictures(), batch_size=8, num_workers=1)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))
    model = model.to(memory_format=torch.channels_last)
    nn.DataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaled = torch.compile(lambda t: (t * 2).to(torch.float64).sum(), backend="eager", fullgraph=True)
    seen, done, losses = set(), 0, []
    while done < STEPS:
        for x, y, plain in loader:
            seen |= set(plain.tolist())
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())  # in each step
            time.sleep(0.022)
            if done >= 3:  # the recorder observes layers only while nothing is compiled
                given = x.double() if done == 20 else x  # compiles once more
                losses.append(float(scaled(given)))
            done += 1
    counters = torch._dynamo.utils.counters
    print(losses)
    print(seen, counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))


if __name__ == "__main__":
    main()
