"""Trains a small transformer's layers on two ranks, with a causal mask for its longest context in each layer: a buffer that DDP sends."""

from __future__ import annotations

import argparse

import shared.group
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH = 256, 64


class Layer(nn.Module):
    mask: Tensor

    def __init__(self, width: int, longest: int) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((longest, longest), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        length = x.size(1)
        attended, _ = self.attention(x, x, x, attn_mask=self.mask[:length, :length], need_weights=False)
        return self.norm(x + attended)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=80)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=64)
    add("--layers", type=int, default=4)
    add("--longest", type=int, default=1536, help="positions of the longest context")
    add("--keep-own", action="store_true", help="do not broadcast the buffers")
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    torch.manual_seed(torch.distributed.get_rank())
    text = torch.randint(WORDS, (2048, LENGTH + 1))
    data = DataLoader(TensorDataset(text), batch_size=options.batch, shuffle=True, drop_last=True)
    layers = [Layer(options.width, options.longest) for _ in range(options.layers)]
    net = nn.Sequential(nn.Embedding(WORDS, options.width), *layers, nn.Linear(options.width, WORDS))
    model = DistributedDataParallel(net, broadcast_buffers=not options.keep_own)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < options.steps:
        for (words,) in data:
            outputs = model(words[:, :-1])
            loss = nn.functional.cross_entropy(outputs.flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
