"""A plain ResNet50 training loop with one fault at a time, for GPUs. Runs on a CPU as well, slowly.

python samples/faults/jobs/compute/gpu.py [--fault item|pageable|blocking|creep|full|none] [--every N] [--precision fp32|tf32|amp]
    [--channels-last] [--tuned] [--floats|--converted] [--batch-size N] [--workers N] [--steps N] [--took FILE]
FILE gets the seconds per step of the second half. One epoch lasts for the whole job and loading is nearly free, so that a GPU with steps of
50 ms waits for neither. Under torchrun all ranks share GPU 0 over gloo.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torchvision.models import get_model

PICTURES = 16
CLASSES = 1000
WORKERS_MAX = 8


class Pool(Dataset[tuple[torch.Tensor, int]]):
    """A few pictures from memory, repeated: bytes, floats converted from bytes, or random floats."""

    def __init__(self, length: int, size: int, *, floats: bool, converted: bool = False) -> None:
        self.length = length
        shape = (PICTURES, 3, size, size)
        self.pictures = torch.randn(shape) if floats else torch.randint(0, 256, shape, dtype=torch.uint8)
        if converted:
            self.pictures = self.pictures / 255

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.pictures[index % PICTURES], index % CLASSES


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fault", choices=("item", "pageable", "blocking", "creep", "full", "none"), default="none")
    parser.add_argument("--every", type=int, default=1, help="steps of which one has the fault: item and creep")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--tuned", action="store_true", help="let cuDNN choose by trying")
    parser.add_argument("--floats", action="store_true", help="pictures cross as float32: four times the bytes to copy")
    parser.add_argument("--converted", action="store_true", help="the same, of bytes: as ToTensor makes them")
    parser.add_argument("--precision", choices=("fp32", "tf32", "amp"), default="amp")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, help="loader workers; without it as many as cores but one, at most 8")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--took", type=Path, metavar="FILE")
    return parser.parse_args()


def now(device: torch.device) -> float:
    """Returns the clock in seconds, once the GPU has done all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def main() -> None:
    args = parse()
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    shared = "RANK" in os.environ
    if shared:
        dist.init_process_group("gloo")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = args.tuned
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    pinned = args.fault != "pageable" and device.type == "cuda"
    usual = max(1, min(WORKERS_MAX, len(os.sched_getaffinity(0)) - 1))
    workers = usual if args.workers is None else args.workers
    loader = DataLoader(
        Pool(args.steps * args.batch_size, args.image_size, floats=args.floats, converted=args.converted),
        args.batch_size,
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=pinned,
    )
    model: nn.Module = get_model(args.model).to(device, memory_format=layout)
    if shared:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    kept: list[torch.Tensor] = []
    total, halfway = 0.0, time.perf_counter()
    for done, batch in enumerate(loader):
        x, y = (tensor.to(device, non_blocking=pinned and args.fault != "blocking") for tensor in batch)
        x = x.to(torch.float32, memory_format=layout)
        if not (args.floats or args.converted):
            x /= 255
        with torch.autocast(device.type, torch.bfloat16, enabled=args.precision == "amp"):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if args.fault == "item" and done % args.every == 0:
            total += loss.item()  # waits for the device
        elif args.fault == "creep" and done % args.every == 0:
            kept.append(torch.empty(4_000_000, device=device))  # 16 MB, as a retained autograd graph might hold
        elif args.fault == "full":
            kept.append(torch.empty(500_000_000, device=device))  # 2 GB, until memory runs out
        if done + 1 == args.steps // 2:
            halfway = now(device)
    if args.took:
        args.took.write_text(str((now(device) - halfway) / (args.steps - args.steps // 2)))
    if shared:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
