"""Trains a network with a second one that does not learn: a teacher of its outputs, or a judge of how alike two pictures are."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, log_softmax, mse_loss
from torch.utils.data import DataLoader, TensorDataset

WORDS, CLASSES, SIDE = 2000, 20, 48


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--of", choices=("texts", "pictures"), default="texts")
    add("--teacher", choices=("gradients", "no_grad", "frozen"), default="gradients")
    add("--width", type=int, default=160, help="of the teacher")
    add("--layers", type=int, default=3, help="of the teacher")
    add("--batch", type=int, default=16)
    return parser.parse_args()


class Reader(nn.Module):
    """Sorts texts."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.1, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(self.words(ids)).mean(1))
        return found


def convolutions(width: int, layers: int, out: int) -> nn.Sequential:
    inside = [nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU()) for _ in range(layers)]
    return nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), *inside, nn.Conv2d(width, out, 3, padding=1))


class Training:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        if options.of == "texts":
            self.teacher: nn.Module = Reader(options.width, options.layers)
            self.net: nn.Module = Reader(96, 2)
        else:
            self.teacher = convolutions(options.width, options.layers, CLASSES)
            self.net = convolutions(24, 2, 3)
        self.teacher.eval()
        if options.teacher == "frozen":
            self.teacher.requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    def loss(self, x: Tensor) -> Tensor:
        if self.options.of == "pictures":
            noisy = x + 0.1 * torch.randn_like(x)
            return mse_loss(self.teacher(self.net(noisy)), self.taught(x))
        soft = log_softmax(self.taught(x), -1)
        return kl_div(log_softmax(self.net(x), -1), soft, log_target=True, reduction="batchmean")

    def taught(self, x: Tensor) -> Tensor:
        if self.options.teacher == "no_grad":
            with torch.no_grad():
                found: Tensor = self.teacher(x)
        else:
            found = self.teacher(x)
        return found

    def step(self, x: Tensor) -> Tensor:
        loss = self.loss(x)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    kept = 40 * options.batch
    data = torch.randint(WORDS, (kept, 48)) if options.of == "texts" else torch.rand(kept, 3, SIDE, SIDE)
    training = Training(options)
    step = 0
    while step < options.steps:
        for (x,) in DataLoader(TensorDataset(data), batch_size=options.batch, shuffle=True):
            loss = training.step(x)
            step += 1
            if step == options.steps:
                break
    print(f"loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
