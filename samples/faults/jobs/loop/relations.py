"""Trains a network on the relations of all pairs of a scene's objects; its first layer computes each pair, or each object."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, relu
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 12, 10


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--objects", type=int, default=24)
    add("--width", type=int, default=96)
    add("--hidden", type=int, default=96)
    add("--batch", type=int, default=32)
    add("--layers", type=int, default=0, help="that follow for each object")
    add("--each", action="store_true", help="the first layer computes each object")
    return parser.parse_args()


class Relations(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width, hidden = options.width, options.hidden
        self.each = options.each
        self.objects = nn.Linear(FEATURES, width)
        self.more = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(options.layers)))
        self.pair = nn.Linear(2 * width, hidden)
        self.left, self.right = nn.Linear(width, hidden), nn.Linear(width, hidden, bias=False)
        self.answer = nn.Linear(hidden, CLASSES)

    def forward(self, scene: Tensor) -> Tensor:
        objects = self.more(relu(self.objects(scene)))
        number = objects.size(1)
        if self.each:
            related = self.left(objects).unsqueeze(2) + self.right(objects).unsqueeze(1)
        else:
            first = objects.unsqueeze(2).expand(-1, -1, number, -1)
            second = objects.unsqueeze(1).expand(-1, number, -1, -1)
            related = self.pair(torch.cat([first, second], dim=-1))
        return self.answer(relu(related).mean((1, 2)))


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    net = Relations(options)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)
    scenes = TensorDataset(torch.randn(2048, options.objects, FEATURES), torch.randint(CLASSES, (2048,)))
    loader = DataLoader(scenes, batch_size=options.batch, shuffle=True, drop_last=True)
    step = 0
    while step < options.steps:
        for scene, answer in loader:
            loss = cross_entropy(net(scene), answer)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
