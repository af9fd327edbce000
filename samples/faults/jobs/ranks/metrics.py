"""Trains on two ranks that also exchange metrics: outputs, objects, the loss, the gradients' norms, or nothing at a barrier."""

from __future__ import annotations

import argparse
from typing import Any

import shared.group
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


def exchange(what: str, outputs: Tensor, loss: Tensor) -> None:
    ranks = dist.get_world_size()
    if what == "outputs":
        everybody = [torch.empty_like(outputs) for _ in range(ranks)]
        dist.all_gather(everybody, outputs)
    elif what == "objects":
        objects: list[Any] = [None] * ranks
        dist.all_gather_object(objects, {"loss": loss.item(), "outputs": outputs})
    elif what == "loss":
        dist.all_reduce(loss)
    elif what == "barrier":
        dist.barrier()


def mean_norms(model: nn.Module) -> dict[str, float]:
    """Each gradient's norm, averaged over the ranks."""
    norms = {}
    for name, parameter in model.named_parameters():
        norm = parameter.grad.norm()
        dist.all_reduce(norm)
        norms[name] = norm.item() / dist.get_world_size()
    return norms


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=256)
    add("--depth", type=int, default=8, help="times that one layer is applied: computing without more gradients")
    add("--classes", type=int, default=1000, help="outputs of a sample")
    add("--what", choices=("outputs", "objects", "loss", "norms", "barrier"), default="outputs")
    add("--every", type=int, default=1, help="steps between two exchanges of metrics")
    return parser.parse_args()


def main() -> None:
    options = parse()
    shared.group.join()
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(4096, options.width), torch.randint(0, options.classes, (4096,)))
    batches = BatchSampler(RandomSampler(data), options.batch, drop_last=True)
    loader = DataLoader(data, batch_size=None, sampler=batches)
    different = options.depth if options.what == "norms" else 1
    inner = [layer for _ in range(different) for layer in (nn.Linear(options.width, options.width), nn.ReLU())]
    inner *= options.depth // different
    model = DistributedDataParallel(nn.Sequential(*inner, nn.Linear(options.width, options.classes)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for inputs, labels in loader:
            outputs = model(inputs)
            loss = nn.functional.cross_entropy(outputs, labels)
            optimizer.zero_grad()
            loss.backward()
            if options.what == "norms" and done % options.every == 0:
                mean_norms(model)
            optimizer.step()
            done += 1
            if done % options.every == 0:
                exchange(options.what, outputs.detach(), loss.detach())
            if done == options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
