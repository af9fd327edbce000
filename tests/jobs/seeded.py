"""A seeded training whose every loss and final weight can be compared bit by bit: shuffling, workers, dropout, evaluation, scheduler."""

import hashlib
import sys

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.randn(3, 8, 8), torch.tensor(index % 4)  # from the worker's own RNG: its state counts too


def main(workers: int) -> None:
    torch.manual_seed(5)
    torch.set_num_threads(1)
    data = DataLoader(Noise(), batch_size=8, shuffle=True, num_workers=workers)
    held_out = DataLoader(Noise(), batch_size=8)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(144, 4)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(loss.item().hex(), y.tolist())
        with torch.no_grad():
            for x, _y in held_out:
                model(x)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), torch.get_rng_state().sum().item())


if __name__ == "__main__":
    main(int(sys.argv[1]))
