"""Sound training loops of unusual structure: nothing in them is worth changing."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import shared.group
import shared.models
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import DataLoader, Dataset, TensorDataset

PIXELS = 3 * 16 * 16
PICTURES = 1344  # 21 batches of 64, so that no period below coincides with the epochs
CRITIC_STEPS = 5  # WGAN-GP: critic steps per generator step
REGULARISED_EVERY = 16  # StyleGAN2: lazy R1 gradient penalty


def pictures(batch: int, size: int = 32, classes: int = 10) -> DataLoader:
    memory = TensorDataset(torch.rand(PICTURES, 3, size, size), torch.randint(classes, (PICTURES,)))
    return DataLoader(memory, batch_size=batch, shuffle=True, drop_last=True)


def batches(steps: int, batch: int, size: int = 32) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Yields (step, pictures, labels), epoch after epoch."""
    data, step = pictures(batch, size), 0
    while step < steps:
        for x, y in data:
            yield step, x, y
            step += 1
            if step >= steps:
                break


class Kept(Dataset):
    """Keeps each picture once it is decoded: memory grows throughout the first epoch."""

    def __init__(self, pictures: int, size: int) -> None:
        self.kept = torch.empty(pictures, 3, size, size)
        self.known = bytearray(pictures)

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not self.known[index]:
            self.known[index] = 1
            self.kept[index] = index / len(self)
        return self.kept[index], index % 10


def train(model: nn.Module, steps: int, batch: int, size: int = 32) -> None:
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01)
    for _, x, y in batches(steps, batch, size):
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def perceptron(inputs: int, width: int, outputs: int, depth: int = 3) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, width), nn.LeakyReLU(0.2)]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def inside_backward(steps: int) -> None:
    """PyTorch's memory tutorial: each gradient is used and freed as soon as it is ready."""
    model = perceptron(PIXELS, 512, 10, depth=8)
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def update(parameter: Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    for _, x, y in batches(steps, 128, 16):
        cross_entropy(model(x.flatten(1)), y).backward()


def wasserstein(steps: int) -> None:
    """WGAN-GP: the generator learns in every fifth step only."""
    generator, critic = perceptron(64, 512, PIXELS), perceptron(PIXELS, 256, 1)
    learns_g, learns_c = (
        torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.0, 0.9), fused=True) for net in (generator, critic)
    )
    for step, x, _ in batches(steps, 64, 16):
        real, fake = x.flatten(1), generator(torch.randn(64, 64)).detach()
        mixed = torch.lerp(real, fake, torch.rand(64, 1)).requires_grad_()
        slope = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)[0]
        penalty = (slope.norm(dim=1) - 1).square().mean()
        learns_c.zero_grad()
        (critic(fake).mean() - critic(real).mean() + 10 * penalty).backward()
        learns_c.step()
        if step % CRITIC_STEPS == 0:
            learns_g.zero_grad()
            (-critic(generator(torch.randn(64, 64))).mean()).backward()
            learns_g.step()


def lazily_regularised(steps: int) -> None:
    """A GAN whose discriminator is regularised in every sixteenth step, in a pass of its own, and frozen while the generator learns."""
    generator, judge = perceptron(64, 64, PIXELS, depth=1), perceptron(PIXELS, 384, 1, depth=5)
    learns_g, learns_j = (
        torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.0, 0.99), fused=True) for net in (generator, judge)
    )
    no, yes = torch.zeros(64, 1), torch.ones(64, 1)
    for step, x, _ in batches(steps, 64, 16):
        real, fake = x.flatten(1), generator(torch.randn(64, 64))
        loss = binary_cross_entropy_with_logits(judge(real), yes)
        loss = loss + binary_cross_entropy_with_logits(judge(fake.detach()), no)
        learns_j.zero_grad()
        loss.backward()
        learns_j.step()
        if step % REGULARISED_EVERY == 0:
            real.requires_grad_()
            slope = torch.autograd.grad(judge(real).sum(), real, create_graph=True)[0]
            learns_j.zero_grad()
            (5 * REGULARISED_EVERY * slope.square().sum(1).mean()).backward()
            learns_j.step()
        learns_g.zero_grad()
        judge.requires_grad_(False)
        binary_cross_entropy_with_logits(judge(fake), yes).backward()
        judge.requires_grad_(True)
        learns_g.step()


def unfreezing(steps: int) -> None:
    """Fine-tuning: the head alone at first, then all of it."""
    model = shared.models.small_cnn(48)
    head = model[-1]
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for parameter in head.parameters():
        parameter.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, x, y in batches(steps, 32):
        if step == 2 * steps // 3:
            for parameter in model.parameters():
                parameter.requires_grad_(True)
        optimizer.zero_grad()
        cross_entropy(model(x), y).backward()
        optimizer.step()


def growing_pictures(steps: int) -> None:
    """Progressive resizing: small pictures at first."""
    model = shared.models.small_cnn(48)
    train(model, 2 * steps // 3, 16, 24)
    train(model, steps // 3, 16, 48)


def keeping_pictures(steps: int) -> None:
    """A cache that fills: the run ends within the first epoch, or soon after."""
    model = shared.models.small_cnn(48)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    step = 0
    while step < steps:
        for x, y in DataLoader(Kept(6000, 64), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            step += 1
            if step >= steps:
                break


def two_models(steps: int) -> None:
    """Trains a small model first, then the main one."""
    train(shared.models.small_cnn(24), 2 * steps // 3, 16)
    train(shared.models.TinyViT(), steps // 3, 16)


def short_steps(steps: int) -> None:
    """Steps of about a millisecond, each with a schedule update and an accuracy."""
    model = perceptron(PIXELS, 128, 10, depth=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    blocks = TensorDataset(torch.rand(64, 64, PIXELS), torch.randint(10, (64, 64)))  # whole batches
    right, summed, step = 0.0, 0.0, 0
    while step < steps:
        for x, y in DataLoader(blocks, batch_size=None, shuffle=True):
            scores = model(x)
            loss = cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            right += (scores.argmax(1) == y).float().mean().item()
            summed += loss.item()
            step += 1
    print(f"accuracy {right / step:.3f}, loss {summed / step:.3f}")


LOOPS = {
    "inside-backward": inside_backward,
    "wasserstein": wasserstein,
    "lazily-regularised": lazily_regularised,
    "unfreezing": unfreezing,
    "growing-pictures": growing_pictures,
    "keeping-pictures": keeping_pictures,
    "two-models": two_models,
    "short-steps": short_steps,
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("loop", choices=LOOPS)
    parser.add_argument("--steps", type=int, default=300)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    LOOPS[options.loop](options.steps)
    shared.group.leave()


if __name__ == "__main__":
    main()
