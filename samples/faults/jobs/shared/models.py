"""Small nets for the jobs beside this file."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def small_cnn(width: int, hidden: int = 64) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * width, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


class TinyViT(nn.Module):
    """A vision transformer for 32x32 pictures, cut into 64 patches."""

    def __init__(self, width: int = 96, depth: int = 4, heads: int = 3, classes: int = 10) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.positions = nn.Parameter(torch.zeros(1, 64, width))
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, pictures: Tensor) -> Tensor:
        tokens = self.patches(pictures).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(tokens).mean(1))
