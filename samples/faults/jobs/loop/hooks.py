"""Trains a small transformer while hooks collect histograms of its gradients, or of its activations, in every step or rarely; or while it
registers such hooks anew in each step.
"""

from __future__ import annotations

import argparse
import logging
import os
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WORDS, LENGTH, CLASSES = 2000, 32, 4


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=200)
    add("--width", type=int, default=128)
    add("--layers", type=int, default=3)
    add("--batch", type=int, default=32)
    add("--of", choices=("gradients", "accumulated", "activations", "updates", "messages"), default="gradients")
    add("--every", type=int, default=1, help="steps")
    add("--bins", type=int, default=64)
    add("--norms", action="store_true", help="norms alone instead of histograms")
    add("--anew", action="store_true", help="register the hooks in each step")
    add("--removed", action="store_true", help="and remove them at its end")
    return parser.parse_args()


logger = logging.getLogger("training")


class Handle(Protocol):
    def remove(self) -> None: ...


class Handler(logging.FileHandler):
    def remove(self) -> None:
        logger.removeHandler(self)
        self.close()


class Watch:
    """Keeps the latest histograms by name."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.step = options, 0
        self.latest: dict[str, list[float]] = {}

    def registered(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> list[Handle]:
        of = self.options.of
        if of == "messages":
            handler = Handler(os.devnull)
            logger.addHandler(handler)
            return [handler]
        if of == "gradients":
            return [p.register_hook(self.hook_of(name, p)) for name, p in net.named_parameters()]
        if of == "accumulated":
            return [
                p.register_post_accumulate_grad_hook(lambda each, name=name: self.keep(name, each.grad))
                for name, p in net.named_parameters()
            ]
        if of == "updates":
            return [optimizer.register_step_post_hook(lambda of, *_: self.keep_all(of))]
        return [
            module.register_forward_hook(self.forward_hook_of(name))
            for name, module in net.named_modules()
            if isinstance(module, nn.Linear)
        ]

    def keep_all(self, optimizer: torch.optim.Optimizer) -> None:
        for n, parameter in enumerate(optimizer.param_groups[0]["params"]):
            self.keep(str(n), parameter)

    def hook_of(self, name: str, parameter: Tensor) -> Any:
        def hook(grad: Tensor) -> None:
            self.keep(f"{name}.grad", grad)
            self.keep(name, parameter)

        return hook

    def forward_hook_of(self, name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> None:
            self.keep(name, output)

        return hook

    def keep(self, name: str, tensor: Tensor) -> None:
        if self.step % self.options.every:
            return
        values = tensor.detach()
        if self.options.norms:
            self.latest[name] = [float(values.norm())]
        else:
            low, high = float(values.min()), float(values.max())
            self.latest[name] = torch.histc(values, self.options.bins, low, high).tolist()


class Classifier(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, options.width)
        layer = nn.TransformerEncoderLayer(options.width, 4, 4 * options.width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, options.layers, enable_nested_tensor=False)
        self.head = nn.Linear(options.width, CLASSES)

    def forward(self, ids: Tensor) -> Tensor:
        found: Tensor = self.head(self.layers(self.words(ids)).mean(1))
        return found


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    samples = 40 * options.batch
    data = TensorDataset(torch.randint(WORDS, (samples, LENGTH)), torch.randint(CLASSES, (samples,)))
    net = Classifier(options)
    watch = Watch(options)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
    handles = [] if options.anew else watch.registered(net, optimizer)
    while watch.step < options.steps:
        for ids, labels in DataLoader(data, batch_size=options.batch, shuffle=True):
            if options.anew:
                handles = watch.registered(net, optimizer)
            loss = nn.functional.cross_entropy(net(ids), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            for name in ("loss", "rate", "norm") if options.of == "messages" else ():
                logger.warning("%s in step %d", name, watch.step)
            for handle in handles if options.removed else ():
                handle.remove()
            watch.step += 1
            if watch.step == options.steps:
                break
    print(f"loss {loss.item():.4f}, {len(watch.latest)} tensors watched")


if __name__ == "__main__":
    main()
