"""Trains on two ranks and validates every so many steps: each rank on all samples, or on its share of them."""

from __future__ import annotations

import argparse

import shared.group
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, TensorDataset


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=240)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=512)
    add("--every", type=int, default=20, help="steps between two validations")
    add("--held-out", type=int, default=4096, help="samples of a validation")
    add("--share", action="store_true", help="divide them among the ranks")
    return parser.parse_args()


def samples(count: int, width: int) -> TensorDataset:
    return TensorDataset(torch.randn(count, width), torch.randint(0, 10, (count,)))


@torch.no_grad()
def validate(model: nn.Module, loader: DataLoader[tuple[torch.Tensor, ...]]) -> float:
    model.eval()
    counts = torch.zeros(2)
    for inputs, labels in loader:
        right = (model(inputs).argmax(1) == labels).sum().item()
        counts += torch.tensor([right, len(labels)])
    dist.all_reduce(counts)
    model.train()
    right, seen = counts.tolist()
    return right / seen


def main() -> None:
    options = parse()
    shared.group.join()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    training, held_out = samples(8192, options.width), samples(options.held_out, options.width)
    batches = BatchSampler(DistributedSampler(training), options.batch, drop_last=True)
    loader = DataLoader(training, batch_size=None, sampler=batches)
    sampler = DistributedSampler(held_out, shuffle=False) if options.share else None
    validation = DataLoader(held_out, 2 * options.batch, sampler=sampler)
    layers = [layer for _ in range(4) for layer in (nn.Linear(options.width, options.width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(options.width, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done % options.every == 0 and dist.get_rank() == 0:
                print(f"step {done}: loss {loss.item():.3f}", flush=True)
            if done % options.every == 0:
                validate(model.module, validation)
            if done == options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
