"""300 steps of a few ms, whose marks are buffered; with `on`, each is under anomaly detection, entered in the loop as torch's
documentation does.
"""

import contextlib
import sys
import warnings

import torch
from torch.utils.data import DataLoader, TensorDataset


def main():
    warnings.simplefilter("ignore")  # anomaly detection warns that it is slow
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.randn(9600, 1024), torch.randint(0, 2, (9600,)))
    for x, y in DataLoader(data, batch_size=32):
        with torch.autograd.detect_anomaly(check_nan=False) if sys.argv[1] == "on" else contextlib.nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
        optimizer.step()
    print(f"{loss.item():.6f}")


main()
