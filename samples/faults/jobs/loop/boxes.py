"""Trains a small detector on random boxes whose targets are set box by box or by tensors of indices; both set the same."""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

CELLS, SIDE = 16, 64


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--batch", type=int, default=16)
    add("--boxes", type=int, default=12, help="of each picture")
    add("--width", type=int, default=24)
    add("--assign", choices=("loop", "tensors"), default="loop")
    return parser.parse_args()


class Detector(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(2 * width, 2 * width, 3, 1, 1), nn.ReLU())
        self.head = nn.Conv2d(2 * width, 3, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(pictures))
        return found


def assigned_in_a_loop(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Which cells have a box, and where in the cell its centre is. `boxes`: pictures x boxes x 2, from 0 to 1."""
    taken = torch.zeros(len(boxes), CELLS, CELLS, dtype=torch.bool)
    centres = torch.zeros(len(boxes), 2, CELLS, CELLS)
    for picture in range(len(boxes)):
        for box in boxes[picture]:
            x, y = box[0] * CELLS, box[1] * CELLS
            column, row = int(x), int(y)
            taken[picture, row, column] = True
            centres[picture, 0, row, column] = x - column
            centres[picture, 1, row, column] = y - row
    return taken, centres


def assigned_at_once(boxes: Tensor) -> tuple[Tensor, Tensor]:
    taken = torch.zeros(len(boxes), CELLS, CELLS, dtype=torch.bool)
    centres = torch.zeros(len(boxes), 2, CELLS, CELLS)
    places = boxes * CELLS
    columns, rows = places.long().unbind(-1)
    pictures = torch.arange(len(boxes))[:, None].expand_as(rows)
    taken[pictures, rows, columns] = True
    centres[pictures, :, rows, columns] = places.frac()
    return taken, centres


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    pictures, boxes = torch.randn(512, 3, SIDE, SIDE), torch.rand(512, options.boxes, 2)
    loader = DataLoader(TensorDataset(pictures, boxes), batch_size=options.batch, shuffle=True)
    model = Detector(options.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    assign = assigned_in_a_loop if options.assign == "loop" else assigned_at_once
    done = 0
    while done < options.steps:
        for inputs, wanted in loader:
            scores = model(inputs)
            taken, centres = assign(wanted)
            here = taken[:, None].expand_as(centres)
            loss = functional.binary_cross_entropy_with_logits(scores[:, 0], taken.float())
            loss = loss + functional.mse_loss(scores[:, 1:][here], centres[here])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
