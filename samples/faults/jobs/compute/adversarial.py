"""Trains a generator of pictures against a discriminator, or a classifier with a second loss; gradients may be thrown away."""

from __future__ import annotations

import argparse
import itertools

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NOISE = 64
SIDE = 32


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--batch", type=int, default=32)
    add("--width", type=int, default=24, help="channels of the last picture before the generated one")
    add("--judge", type=int, default=24, help="channels of the discriminator's first layer")
    add("--perceptrons", action="store_true", help="both networks are perceptrons, with hidden layers of these widths")
    add("--detached", action="store_true", help="the discriminator's loss ends at the pictures")
    add("--frozen", action="store_true", help="the discriminator needs no gradients in the generator's pass")
    add(
        "--second-loss",
        choices=("none", "too-early", "unused", "apart", "added", "of-another-view"),
        default="none",
        help="of a classifier, without generator",
    )
    add("--hidden", type=int, default=3, help="layers that both of the classifier's losses share")
    add("--between", type=int, default=0, help="layers of this width before the second loss alone")
    return parser.parse_args()


def batches(data: TensorDataset, options: argparse.Namespace) -> DataLoader[tuple[Tensor, ...]]:
    order = torch.randint(len(data), (options.steps, options.batch))
    return DataLoader(data, batch_size=None, sampler=list(order))


def perceptron(*widths: int) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(0.2)]
    return layers[:-1]


def generator(options: argparse.Namespace) -> nn.Module:
    width = options.width
    if options.perceptrons:
        return nn.Sequential(*perceptron(NOISE, width, width, width, SIDE * SIDE), nn.Unflatten(1, (1, SIDE, SIDE)))
    layers: list[nn.Module] = [nn.Unflatten(1, (NOISE, 1, 1)), nn.ConvTranspose2d(NOISE, 4 * width, 4, bias=False)]
    for channels in (4 * width, 2 * width):
        layers += [
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.ConvTranspose2d(channels, channels // 2, 4, 2, 1, bias=False),
        ]
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), nn.ConvTranspose2d(width, 1, 4, 2, 1), nn.Tanh())


def discriminator(options: argparse.Namespace) -> nn.Module:
    width = options.judge
    if options.perceptrons:
        return nn.Sequential(nn.Flatten(), *perceptron(SIDE * SIDE, width, width, width, 1), nn.Flatten(0))
    layers: list[nn.Module] = [nn.Conv2d(1, width, 4, 2, 1), nn.LeakyReLU(0.2)]
    for channels in (width, 2 * width):
        layers += [
            nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.LeakyReLU(0.2),
        ]
    return nn.Sequential(*layers, nn.Conv2d(4 * width, 1, 4), nn.Flatten(0))


def judged(found: Tensor, *, real: bool) -> Tensor:
    wanted = torch.ones_like(found) if real else torch.zeros_like(found)
    return nn.functional.binary_cross_entropy_with_logits(found, wanted)


def compete(options: argparse.Namespace) -> None:
    makes, judges = generator(options), discriminator(options)
    making, judging = (torch.optim.Adam(net.parameters(), lr=2e-4, fused=True) for net in (makes, judges))
    for (pictures,) in batches(TensorDataset(torch.rand(2000, 1, SIDE, SIDE)), options):
        made = makes(torch.randn(options.batch, NOISE))
        judging.zero_grad()
        shown = made.detach() if options.detached else made
        loss = judged(judges(pictures), real=True) + judged(judges(shown), real=False)
        loss.backward(retain_graph=True)
        judging.step()
        making.zero_grad()
        judges.requires_grad_(not options.frozen)
        deceived = judged(judges(made), real=True)
        deceived.backward()
        judges.requires_grad_(True)
        making.step()
    print(f"loss {loss.item():.3f}", flush=True)


def classify(options: argparse.Namespace) -> None:
    width = options.width
    model = nn.Sequential(*perceptron(*[width] * (options.hidden + 1)), nn.LeakyReLU(0.2))
    heads = nn.ModuleList([nn.Linear(width, 10), nn.Sequential(*perceptron(*[width] * (options.between + 2)))])
    optimizer = torch.optim.Adam([*model.parameters(), *heads.parameters()], lr=1e-3, fused=True)
    for rows, labels in batches(TensorDataset(torch.randn(5000, width), torch.randint(10, (5000,))), options):
        hidden = model(rows)
        second = (heads[1](hidden) - rows).square().mean()
        if options.second_loss == "too-early":
            second.backward(retain_graph=True)
        optimizer.zero_grad()
        if options.second_loss == "of-another-view":
            second.backward(retain_graph=True)
            hidden = model(rows + torch.randn_like(rows))
        loss = nn.functional.cross_entropy(heads[0](hidden), labels)
        if options.second_loss == "apart":
            second.backward(retain_graph=True)
        elif options.second_loss == "added":
            loss = loss + second
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.3f}", flush=True)


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    (compete if options.second_loss == "none" else classify)(options)


if __name__ == "__main__":
    main()
