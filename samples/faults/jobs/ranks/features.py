"""Trains two towers with a contrastive loss on the features of all ranks, which are gathered in the loss."""

from __future__ import annotations

import argparse

import shared.group
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, TensorDataset


class Contrast(nn.Module):
    """`once`: both towers' features in one gather, in half precision."""

    def __init__(self, once: bool) -> None:
        super().__init__()
        self.once = once

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        if self.once:
            everything = gathered(torch.cat([images, texts], 1).bfloat16()).float()
            all_images, all_texts = everything.chunk(2, 1)
        else:
            all_images, all_texts = gathered(images), gathered(texts)
        own = torch.arange(len(images)) + dist.get_rank() * len(images)
        loss: Tensor = nn.functional.cross_entropy(images @ all_texts.T, own)
        return loss + nn.functional.cross_entropy(texts @ all_images.T, own)


def gathered(own: Tensor) -> Tensor:
    parts = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, own.detach().contiguous())
    return torch.cat(parts)


class Towers(nn.Module):
    def __init__(self, inputs: int, width: int, features: int) -> None:
        super().__init__()
        self.image, self.text = (
            nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, features)) for _ in range(2)
        )

    def forward(self, images: Tensor, texts: Tensor) -> tuple[Tensor, Tensor]:
        normal = nn.functional.normalize
        return normal(self.image(images), dim=1), normal(self.text(texts), dim=1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--batch", type=int, default=256)
    add("--width", type=int, default=128)
    add("--features", type=int, default=1024)
    add("--once", action="store_true")
    return parser.parse_args()


def main() -> None:
    options = parse()
    shared.group.join()
    torch.manual_seed(dist.get_rank())
    torch.set_num_threads(1)
    data = TensorDataset(torch.randn(2048, 256), torch.randn(2048, 256))
    batches = BatchSampler(RandomSampler(data), options.batch, drop_last=True)
    loader = DataLoader(data, batch_size=None, sampler=batches)
    model = DistributedDataParallel(Towers(256, options.width, options.features))
    contrast = Contrast(options.once)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    done = 0
    while done < options.steps:
        for images, texts in loader:
            loss = contrast(*model(images, texts))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
