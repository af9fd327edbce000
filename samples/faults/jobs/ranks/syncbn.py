"""Trains a narrow net of many layers whose batch norm is synchronised between the ranks, as torch's own does on GPUs."""

from __future__ import annotations

import argparse
from typing import Any

import shared.group
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EPSILON = 1e-5


class SyncBatchNormFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, ranks: int) -> Tensor:
        count = x.numel() // x.size(1) * ranks
        sums = torch.stack([x.sum((0, 2, 3)), (x * x).sum((0, 2, 3))])
        if ranks > 1:
            dist.all_reduce(sums)
        mean = sums[0] / count
        scale = torch.rsqrt(sums[1] / count - mean * mean + EPSILON)
        normal = (x - spread(mean)) * spread(scale)
        ctx.save_for_backward(normal, weight, scale)
        ctx.count, ctx.ranks = count, ranks
        return normal * spread(weight) + spread(bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        normal, weight, scale = ctx.saved_tensors
        sums = torch.stack([grad.sum((0, 2, 3)), (grad * normal).sum((0, 2, 3))])
        own = sums.clone()
        if ctx.ranks > 1:
            dist.all_reduce(sums)
        shared = grad - spread(sums[0] / ctx.count) - normal * spread(sums[1] / ctx.count)
        return shared * spread(weight * scale), own[1], own[0], None


def spread(values: Tensor) -> Tensor:
    return values[None, :, None, None]


class SyncBatchNorm(nn.BatchNorm2d):
    """Batch norm over all ranks: torch's own accepts only GPU tensors. Has no running statistics, as nothing here evaluates."""

    def forward(self, x: Tensor) -> Tensor:
        return SyncBatchNormFunction.apply(x, self.weight, self.bias, dist.get_world_size())


class OwnBatchNorm(nn.BatchNorm2d):
    """The same arithmetic without the exchange. Torch's own layer, in C++, would save more time than the exchange alone."""

    def forward(self, x: Tensor) -> Tensor:
        return SyncBatchNormFunction.apply(x, self.weight, self.bias, 1)


def network(layers: int, width: int, plain: bool) -> nn.Module:
    norm = OwnBatchNorm if plain else SyncBatchNorm
    inner: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
    for _ in range(layers):
        inner += [norm(width), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)]
    return nn.Sequential(*inner, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=80)
    add("--batch", type=int, default=32)
    add("--layers", type=int, default=24)
    add("--width", type=int, default=8)
    add("--plain", action="store_true", help="batch norm of each rank's own")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(2048, 3, 16, 16), torch.randint(10, (2048,)))
    data = DataLoader(memory, batch_size=options.batch, shuffle=True, drop_last=True)
    net = network(options.layers, options.width, options.plain)
    model = DistributedDataParallel(net, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for x, y in data:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
