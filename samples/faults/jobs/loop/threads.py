"""Trains a net of many small layers while other threads of the process serialise metrics, decode pictures ahead, or sleep."""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import queue
import threading
import time

import numpy as np
import shared.group
import torch
import torch.distributed as dist
from PIL import Image
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

RANK = int(os.environ.get("RANK", "0"))


def send_metrics(busy_ms: float, rest_ms: float) -> None:
    """Runs Python without a pause for `busy_ms`, then sleeps for `rest_ms`, again and again."""
    table = {str(n): n for n in range(100)}
    while True:
        end_ns = time.perf_counter_ns() + busy_ms * 1e6
        while time.perf_counter_ns() < end_ns:
            table = json.loads(json.dumps(table))
        time.sleep(rest_ms / 1e3)


def decode_ahead(waiting: queue.Queue[np.ndarray]) -> None:
    """Decodes pictures into a queue. Pillow releases the interpreter lock while it decodes."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (384, 384, 3), dtype=np.uint8)).save(file, "jpeg")
    while True:
        waiting.put(np.asarray(Image.open(io.BytesIO(file.getvalue())).resize((32, 32))))


def start_threads(options: argparse.Namespace) -> queue.Queue[np.ndarray]:
    decoded: queue.Queue[np.ndarray] = queue.Queue(maxsize=4)
    if options.busy and options.rank in (-1, RANK):
        start = multiprocessing.Process if options.process else threading.Thread
        start(target=send_metrics, args=(options.busy, options.rest), daemon=True).start()
    if options.decode:
        threading.Thread(target=decode_ahead, args=(decoded,), daemon=True).start()
    for _ in range(options.asleep):
        threading.Thread(target=queue.Queue().get, daemon=True).start()
    return decoded


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--steps", type=int, default=300)
    add("--layers", type=int, default=60)
    add("--busy", type=float, default=0.0, metavar="MS", help="that another thread works without a pause")
    add("--rest", type=float, default=10.0, metavar="MS", help="that it then sleeps")
    add("--process", action="store_true", help="a process does it, not a thread")
    add("--rank", type=int, default=-1, help="only on this rank; -1: on all")
    add("--decode", action="store_true", help="a thread decodes a picture for each step")
    add("--asleep", type=int, default=0, help="threads that wait for work which never comes")
    add("--fused", action="store_true", help="the optimizer updates all parameters at once")
    return parser.parse_args()


def picture_of(decoded: queue.Queue[np.ndarray], options: argparse.Namespace) -> Tensor | float:
    return torch.from_numpy(decoded.get()).float().mean() * 0 if options.decode else 0.0


def main() -> None:
    options = parse()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    shared.group.join()
    memory = TensorDataset(torch.rand(4096, 64), torch.randint(10, (4096,)))
    data = DataLoader(memory, batch_size=32, shuffle=True)
    model: nn.Module = nn.Sequential(*(nn.Linear(64, 64) for _ in range(options.layers)), nn.Linear(64, 10))
    if dist.is_initialized():
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), foreach=False, fused=options.fused)
    decoded, step = start_threads(options), 0
    while step < options.steps:
        for x, y in data:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y) + picture_of(decoded, options)
            loss.backward()
            optimizer.step()
            step += 1
            if step >= options.steps:
                break
    shared.group.leave()


if __name__ == "__main__":
    main()
