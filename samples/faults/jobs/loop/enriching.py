"""Trains a small net whose batches get extra features in each step: from a server, after a wait, or computed."""

from __future__ import annotations

import argparse
import json
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import shared.group
import shared.models
import shared.serving
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset, default_collate

RANK = int(os.environ.get("RANK", "0"))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=150)
    add("--batch", type=int, default=16)
    add("--width", type=int, default=48)
    add("--answer", type=float, default=0.0, metavar="MS", help="the server takes so long")
    add("--rest", type=float, default=0.0, metavar="MS", help="no server: a limit on requests that the user keeps to")
    add("--compute", type=float, default=0.0, metavar="MS", help="no server: computed from the batch")
    add("--measure", type=float, default=0.0, metavar="MS", help="metrics of each batch, before the backward pass")
    add("--every", type=int, default=1, help="steps between such metrics")
    add("--in-workers", action="store_true", help="loader workers do it, not the loop")
    add("--in-model", action="store_true", help="the model's forward asks, not the loop")
    add("--ahead", action="store_true", help="ask for the next batch while this one is trained on")
    add("--workers", type=int, default=0)
    add("--rank", type=int, default=-1, help="only this one asks")
    return parser.parse_args()


class Store:
    """Features of a batch: from a server, after a wait, or computed from the batch."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rest_s, self.compute_s, self.url, self.server = options.rest / 1000, options.compute / 1000, "", None
        if options.answer:
            self.server, self.url = shared.serving.start(options.answer)

    def features(self, pictures: Tensor) -> Tensor:
        if self.compute_s:
            return self.smooth(pictures)
        if not self.url:
            time.sleep(self.rest_s)
            return pictures
        with urllib.request.urlopen(self.url) as answer:
            return pictures + sum(json.load(answer)) / 8

    def smooth(self, pictures: Tensor) -> Tensor:
        until_s, smoothed = time.thread_time() + self.compute_s, pictures.numpy()
        while time.thread_time() < until_s:
            smoothed = (np.roll(smoothed, 1, axis=2) + smoothed) / 2
        return torch.from_numpy(smoothed)

    def collate(self, samples: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        pictures, y = default_collate(samples)
        return [self.features(pictures), y]


def metrics(scores: np.ndarray, seconds: float) -> None:
    """Histograms of each class's scores, with more and more thresholds."""
    until_s, bins = time.thread_time() + seconds, 200
    while time.thread_time() < until_s:
        for of_class in scores.T:
            np.histogram(of_class, bins=bins)
        bins += 1


class Enriched(nn.Module):
    def __init__(self, net: nn.Module, store: Store | None) -> None:
        super().__init__()
        self.net, self.store = net, store

    def forward(self, pictures: Tensor) -> Tensor:
        return self.net(self.store.features(pictures) if self.store else pictures)


def train(options: argparse.Namespace, data: DataLoader, store: Store | None) -> None:
    plain = Enriched(shared.models.small_cnn(options.width), store if options.in_model else None)
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    thread = ThreadPoolExecutor(1)
    step, before, store = 0, None, None if options.in_model or options.in_workers else store
    while step < options.steps:
        for pictures, y in data:
            if store is None:
                x = pictures
            elif options.ahead:
                asked = thread.submit(store.features, pictures)  # used for training after the next batch
                x = before.result() if before else pictures
                before = asked
            else:
                x = store.features(pictures)
            scores = model(x)
            if options.measure and options.rank in (-1, RANK) and step % options.every == 0:
                metrics(scores.detach().numpy(), options.measure / 1000)
            loss = nn.functional.cross_entropy(scores, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    thread.shutdown()


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(2048, 3, 32, 32), torch.randint(10, (2048,)))
    asks = options.rank in (-1, RANK) and (options.answer or options.rest or options.compute)
    store = Store(options) if asks else None
    collate, workers = (store.collate, 1) if store and options.in_workers else (None, options.workers)
    kept = {"num_workers": workers, "persistent_workers": workers > 0, "collate_fn": collate}
    train(options, DataLoader(memory, batch_size=options.batch, shuffle=True, **kept), store)
    shared.group.leave()
    if store and store.server:
        store.server.terminate()


if __name__ == "__main__":
    main()
