"""A plain training loop for one setting. `bench` runs it in a process of its own; nothing imports it.

    python trainer.py --result F.json --model resnet50 --batch 64 --precision bf16 --channels-last
    torchrun --nproc-per-node=8 trainer.py --result F.json ...

Synthetic batches are already on the device, so that they measure training alone. Steps are timed from end to end; the host waits for the
device only after the warm-up and after each of a few portions of the measurement. Runs in the interpreter that trains: Python 3.9 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchvision
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from torchvision import datasets, transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
OUT_OF_MEMORY = 77  # exit code, so that torchrun ends the other ranks
# The CPU and cuDNN report lack of memory as a RuntimeError that only its message identifies.
NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "ALLOC_FAILED")
PREFETCHED = 2  # batches per worker, torch's default
FEWEST_STEPS = 6  # if steps are very long; with the warm-up enough for the advisor to see five steady steps
FIRST_STEPS = 4  # these allocate, compile and choose algorithms; the last two show the time of a step
PORTIONS = 4  # of the measurement: a disk may become slow at any moment, so only one portion is planned ahead
# Workers start together and so deliver together: a rush of batches, then a wait. Only whole rounds of all workers show the loader's pace.
FEWEST_ROUNDS = 2
LONGEST_ROUNDS = 4  # in a measurement at least: for the first batch, the prefetched ones, and the measured ones
Batch = tuple[Tensor, Tensor]


class OneBatch(Dataset[Batch]):
    """Repeats one batch on the device: a fetch costs nothing."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        images = torch.randn(args.batch, 3, args.image_size, args.image_size, device=device)
        self.images = images.contiguous(memory_format=layout(args))
        self.labels = torch.randint(args.classes, (args.batch,), device=device)

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> Batch:
        return self.images, self.labels


def layout(args: argparse.Namespace) -> torch.memory_format:
    return torch.channels_last if args.channels_last else torch.contiguous_format


def make_loader(args: argparse.Namespace, device: torch.device) -> DataLoader[Any]:
    if args.data is None:
        return DataLoader(OneBatch(args, device), batch_size=None)
    steps = [transforms.RandomResizedCrop(args.image_size), transforms.RandomHorizontalFlip()]
    steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    folder = args.data / "train" if (args.data / "train").is_dir() else args.data
    pictures = datasets.ImageFolder(folder, transforms.Compose(steps))
    sampler: Any = DistributedSampler(pictures, drop_last=True) if dist.is_initialized() else None
    loader = DataLoader(
        pictures,
        batch_size=args.batch,
        sampler=sampler,
        shuffle=sampler is None,
        num_workers=args.workers,
        timeout=args.limit / LONGEST_ROUNDS if args.workers else 0.0,
        pin_memory=device.type == "cuda",
        persistent_workers=args.workers > 0,
        drop_last=True,
    )
    if not len(loader):  # it would be restarted forever
        raise SystemExit(f"train: {folder} holds {len(pictures)} images, fewer than one batch for every rank")
    return loader


def endless(loader: Iterable[Batch]) -> Iterator[Batch]:
    return itertools.chain.from_iterable(itertools.repeat(loader))


def make_model(args: argparse.Namespace, device: torch.device) -> nn.Module:
    classes = args.classes
    if args.data is not None:
        folder = args.data / "train" if (args.data / "train").is_dir() else args.data
        classes = max(classes, sum(1 for entry in folder.iterdir() if entry.is_dir()))
    options = {"aux_logits": False} if args.model in ("googlenet", "inception_v3") else {}
    model: nn.Module = torchvision.models.get_model(args.model, weights=None, num_classes=classes, **options)
    model = model.to(device, memory_format=layout(args))  # type: ignore[call-overload]
    if not dist.is_initialized():
        return model
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)


class StepClock:
    """Marks the ends of steps: by events on the GPU's stream, or by the host's clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.cuda, self.marks = device.type == "cuda", list[Any]()

    def mark(self) -> None:
        if self.cuda:
            event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())

    def steps_s(self) -> list[float]:
        if self.cuda:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) / 1000 for a, b in zip(self.marks, self.marks[1:])]
        return [b - a for a, b in zip(self.marks, self.marks[1:])]


def make_step(args: argparse.Namespace, device: torch.device) -> Callable[[Batch], None]:
    model = make_model(args, device)
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision)
    scaler = torch.amp.GradScaler(device.type, enabled=args.precision == "fp16")

    def step(batch: Batch) -> None:
        images = batch[0].to(device, memory_format=layout(args), non_blocking=True)
        labels = batch[1].to(device, non_blocking=True)
        autocast = torch.autocast(device.type, dtype=dtype) if dtype else contextlib.nullcontext()
        with autocast:
            loss = criterion(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    return step


def warm_up_steps(args: argparse.Namespace, usual_s: float) -> int:
    """Returns the warm-up steps after the first ones. Uses up the prefetched batches, which would hide a slow loader in the measurement."""
    more: int = args.warmup if args.warmup * usual_s < args.seconds else 1
    return more if args.data is None else max(more, PREFETCHED * args.workers - FIRST_STEPS)


def steps_to_come(args: argparse.Namespace, usual_s: float, steps_s: Sequence[float]) -> int:
    """Returns the number of steps that fill the next portion of the requested time at the latest pace; 0 once it is filled."""
    together = max(1, args.workers) if args.data is not None else 1
    least = args.min_steps if args.min_steps * usual_s < 2 * args.seconds else FEWEST_STEPS
    lacking = max(least, FEWEST_ROUNDS * together if together > 1 else 0) - len(steps_s)
    portion_s = args.seconds / PORTIONS
    if lacking <= 0 and args.seconds - sum(steps_s) < portion_s / 2:
        return 0
    wanted = max(round(portion_s / max(usual_s, 1e-6)), lacking, 1)
    rounded: int = min(math.ceil(wanted / together) * together, args.max_steps - len(steps_s))
    return rounded


def agreed(number: int, device: torch.device) -> int:
    """Returns the first rank's number on all ranks."""
    if not dist.is_initialized():
        return number
    shared = torch.tensor(number, device=device)
    dist.broadcast(shared, 0)
    return int(shared)


def measure(args: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    torch.manual_seed(0)
    loader = make_loader(args, device)
    step, batches = make_step(args, device), endless(loader)

    def timed(steps: int) -> list[float]:
        clock = StepClock(device)
        clock.mark()
        for _ in range(steps):
            step(next(batches))
            clock.mark()
        return clock.steps_s()

    usual_s = min(timed(FIRST_STEPS)[2:])
    portion = timed(agreed(warm_up_steps(args, usual_s), device))
    steps_s: list[float] = []
    while more := agreed(steps_to_come(args, sum(portion) / len(portion), steps_s), device):
        portion = timed(more)
        steps_s += portion
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else None
    return {"state": "measured", "steps_s": steps_s, "memory_bytes": peak}


def set_precision(precision: str) -> None:
    """Sets the precision; disables TF32 for FP32, since cuDNN uses TF32 by default."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True


def has_bf16_units() -> bool:
    """True if the kernel's CPU flags list bf16 units: x86 with AVX-512 or AMX, Arm."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text().split()
        return any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    return False


def probe() -> dict[str, Any]:
    """Returns the devices to train on, with torch's versions and models."""
    cuda = torch.cuda.is_available()
    count = torch.cuda.device_count() if cuda else 0
    return {
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "models": torchvision.models.list_models(module=torchvision.models),
        "cuda": torch.version.cuda or "",
        "bf16_units": has_bf16_units(),
        "names": [torch.cuda.get_device_name(n) for n in range(count)],
        "capability": list(torch.cuda.get_device_capability(0)) if cuda else None,
        "memory_bytes": [torch.cuda.get_device_properties(n).total_memory for n in range(count)],
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add = parser.add_argument
    add("--result", type=Path, required=True)
    add("--probe", action="store_true", help="only report what there is to train on")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--model", default="resnet50")
    add("--image-size", type=int, default=224)
    add("--classes", type=int, default=1000)
    add("--batch", type=int, default=32)
    add("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32")
    add("--channels-last", action="store_true")
    add("--data", type=Path)
    add("--workers", type=int, default=0)
    add("--seconds", type=float, default=10.0)
    add("--limit", type=float, default=0.0, help="seconds until whoever started this ends it; 0: never")
    add("--warmup", type=int, default=5, help="steps before the measurement, fewer where they are long")
    add("--min-steps", type=int, default=12)
    add("--max-steps", type=int, default=5000)
    return parser.parse_args()


def write(path: Path, result: dict[str, Any]) -> None:
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(result))
    partial.replace(path)


def main() -> None:
    args = parse()
    if args.probe:
        return write(args.result, probe())
    rank, local_rank = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    device = torch.device("cuda", local_rank) if args.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    set_precision(args.precision)
    try:
        result = measure(args, device)
    except (MemoryError, RuntimeError) as error:
        words = str(error)
        if "DataLoader timed out" in words:
            raise SystemExit(
                f"train: {words} for a batch; fewer workers or smaller batches take less at once"
            ) from None
        if isinstance(error, RuntimeError) and not any(w in words for w in NO_MEMORY):
            raise
        write(args.result, {"state": "oom", "why": words.splitlines()[0][:300] if words else "out of memory"})
        os._exit(OUT_OF_MEMORY)
    if rank == 0:
        write(args.result, result)
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
