"""Trains a torchvision classifier (ResNet50 by default) on an ImageFolder, on one CPU, one GPU or many.

    python samples/train.py --data IMAGES
    torchrun --nproc_per_node=8 samples/train.py --data IMAGES --amp bf16 --channels-last --output checkpoints

IMAGES holds train/ and val/ with a folder a class. --batch-size and --workers are per process.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torchvision  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AMP_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Sample = tuple[Tensor, int]


@dataclass(frozen=True)
class World:
    """The place of this process among the ranks of the job."""

    rank: int
    local_rank: int
    size: int
    device: torch.device

    def say(self, text: str) -> None:
        if self.rank == 0:
            print(text, flush=True)


@dataclass(frozen=True)
class Plan:
    """Length of the training, in optimizer steps."""

    steps_per_epoch: int
    steps: int

    @property
    def epochs(self) -> int:
        return math.ceil(self.steps / self.steps_per_epoch)


def join_world(rank: int, local_rank: int, size: int, *, device_name: str, init_method: str | None) -> World:
    cuda = device_name == "cuda" or (device_name == "auto" and torch.cuda.is_available())
    device = torch.device("cuda", local_rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    if init_method:
        backend, device_id = ("nccl", device) if cuda else ("gloo", None)
        dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=size, device_id=device_id)
    return World(rank, local_rank, size, device)


class SyntheticImages(Dataset[Sample]):
    """Random tensors from memory, so that loading costs nothing."""

    def __init__(self, count: int, image_size: int, classes: int = 1000) -> None:
        self.count = count
        self.classes = [f"class{label}" for label in range(classes)]
        self.pool = torch.randn(16, 3, image_size, image_size, generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Sample:
        return self.pool[index % len(self.pool)], index % len(self.classes)


def make_datasets(args: argparse.Namespace) -> tuple[Dataset[Sample], Dataset[Sample], int]:
    """Returns the training set, the validation set and the number of classes."""
    if args.synthetic:
        train = SyntheticImages(args.synthetic_images, args.image_size)
        return train, SyntheticImages(max(1, args.synthetic_images // 20), args.image_size), len(train.classes)
    to_input = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    crop = [transforms.RandomResizedCrop(args.image_size), transforms.RandomHorizontalFlip()]
    centre = [transforms.Resize(args.image_size * 256 // 224), transforms.CenterCrop(args.image_size)]
    train_set = torchvision.datasets.ImageFolder(args.data / "train", transforms.Compose(crop + to_input))
    if args.no_eval:
        return train_set, Subset(train_set, []), len(train_set.classes)
    val_set = torchvision.datasets.ImageFolder(args.data / "val", transforms.Compose(centre + to_input))
    return train_set, val_set, len(train_set.classes)


def make_loaders(
    args: argparse.Namespace, world: World, train_set: Dataset[Sample], val_set: Dataset[Sample]
) -> tuple[DataLoader[Sample], DataLoader[Sample], DistributedSampler[Sample]]:
    sampler: DistributedSampler[Sample] = DistributedSampler(
        train_set, num_replicas=world.size, rank=world.rank, seed=args.seed, drop_last=True
    )
    # Disjoint parts: DistributedSampler would count some pictures twice to make the parts even.
    val_part = Subset(val_set, range(world.rank, len(val_set), world.size))  # type: ignore[arg-type]
    pin = world.device.type == "cuda"
    keep = args.workers > 0
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=pin,
        persistent_workers=keep,
        drop_last=True,
    )
    val_loader = DataLoader(
        val_part, args.batch_size, num_workers=args.workers, pin_memory=pin, persistent_workers=keep
    )
    return train_loader, val_loader, sampler


def make_model(args: argparse.Namespace, world: World, classes: int) -> tuple[nn.Module, nn.Module]:
    """Returns the bare model, and the one to call in training: the same, or wrapped in DDP if there is a process group."""
    options = {"aux_logits": False} if args.model in ("googlenet", "inception_v3") else {}
    bare = torchvision.models.get_model(args.model, num_classes=classes, **options)
    if args.sync_bn and dist.is_initialized():
        bare = nn.SyncBatchNorm.convert_sync_batchnorm(bare)  # type: ignore[no-untyped-call]
    bare = bare.to(world.device, memory_format=torch.channels_last if args.channels_last else torch.contiguous_format)
    model = bare
    if dist.is_initialized():
        device_ids = [world.local_rank] if world.device.type == "cuda" else None
        model = DistributedDataParallel(bare, device_ids=device_ids, gradient_as_bucket_view=True)
    if args.compile:
        model.compile()  # around DDP, so that the graph is split at bucket boundaries
    return bare, model


def make_optimizer(args: argparse.Namespace, model: nn.Module) -> torch.optim.SGD:
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for parameter in model.parameters():
        # one dimension: a bias, or the scale of a norm
        (plain if args.no_decay_norm_bias and parameter.ndim == 1 else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": args.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    return torch.optim.SGD([g for g in groups if g["params"]], args.lr, momentum=args.momentum, nesterov=True)


def learning_rate(args: argparse.Namespace, plan: Plan, step: int, images_per_step: int) -> float:
    """--lr is for 256 images a step and grows with the batch (Goyal et al. 2017), after a linear warm-up."""
    peak: float = args.lr * images_per_step / 256
    warmup_steps = min(round(args.warmup_epochs * plan.steps_per_epoch), plan.steps // 2)
    if step < warmup_steps:
        factor: float = (step + 1) / warmup_steps
    elif args.schedule == "step":
        factor = 0.1 ** (step // (args.decay_epochs * plan.steps_per_epoch))
    else:
        factor = 0.5 * (1 + math.cos(math.pi * (step - warmup_steps) / (plan.steps - warmup_steps)))
    return peak * factor


class Meter:
    """Sums since the last printed line. Loss and hits stay on the device until a line is due, because reading them waits for the GPU."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.reset()

    def reset(self) -> None:
        self.loss = torch.zeros((), device=self.world.device)
        self.hits = torch.zeros((), device=self.world.device, dtype=torch.long)
        self.images = self.batches = self.steps = 0
        self.data_s = 0.0
        self.start = time.perf_counter()

    def add(self, loss: Tensor, logits: Tensor, target: Tensor) -> None:
        self.loss += loss.detach()
        self.hits += (logits.detach().argmax(1) == target).sum()
        self.images += len(target)
        self.batches += 1

    def line(self) -> str:
        loss, top1 = self.loss.item() / self.batches, 100 * self.hits.item() / self.images
        seconds = time.perf_counter() - self.start
        return (
            f"time {seconds / self.steps:.4f} s  data {self.data_s / self.steps:.4f} s  loss {loss:.6f}  "
            f"top1 {top1:.2f} %  {self.images * self.world.size / seconds:.1f} images/s"
        )


@dataclass
class Trainer:
    args: argparse.Namespace
    world: World
    plan: Plan
    bare: nn.Module
    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    step: int = 0
    best_top1: float = 0.0

    def move(self, images: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        layout = torch.channels_last if self.args.channels_last else torch.contiguous_format
        device = self.world.device
        return images.to(device, memory_format=layout, non_blocking=True), target.to(device, non_blocking=True)

    def autocast(self) -> torch.autocast:
        dtype = AMP_DTYPES.get(self.args.amp)
        return torch.autocast(self.world.device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)

    def gradient_exchange(self, updates: bool) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which DDP exchanges gradients only for the last micro-batch of a step."""
        if isinstance(self.model, DistributedDataParallel) and not updates:
            return self.model.no_sync()
        return contextlib.nullcontext()

    def train_epoch(self, loader: DataLoader[Sample], epoch: int) -> None:
        args = self.args
        criterion = nn.CrossEntropyLoss(label_smoothing=args.label_smoothing)
        batches = min(self.plan.steps_per_epoch, self.plan.steps - self.step) * args.accumulate
        meter = Meter(self.world)
        self.model.train()
        waiting_since = time.perf_counter()
        for index, batch in enumerate(itertools.islice(loader, batches), start=1):
            meter.data_s += time.perf_counter() - waiting_since
            images, target = self.move(*batch)
            updates = index % args.accumulate == 0
            with self.gradient_exchange(updates):
                with self.autocast():
                    logits = self.model(images)
                    loss = criterion(logits, target)
                self.scaler.scale(loss / args.accumulate).backward()
            meter.add(loss, logits, target)
            if updates:
                self.update()
                meter.steps += 1
                if self.step % args.print_every == 0 or self.step == self.plan.steps:
                    self.world.say(f"epoch {epoch}  step {self.step}/{self.plan.steps}  {meter.line()}")
                    meter.reset()
            waiting_since = time.perf_counter()

    def update(self) -> None:
        args = self.args
        images_per_step = args.batch_size * args.accumulate * self.world.size
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(args, self.plan, self.step, images_per_step)
        if args.clip_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.bare.parameters(), args.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1

    @torch.inference_mode()
    def evaluate(self, loader: DataLoader[Sample]) -> tuple[float, float]:
        """Returns top-1 and top-5 accuracy in percent, over the whole validation set."""
        if dist.is_initialized():
            for buffer in self.bare.buffers():  # all ranks judge the model that rank 0 saves
                dist.broadcast(buffer, 0)
        self.bare.eval()
        totals = torch.zeros(3, device=self.world.device, dtype=torch.long)
        for batch in loader:
            images, target = self.move(*batch)
            with self.autocast():
                logits = self.bare(images)
            hits = logits.topk(min(5, logits.shape[1])).indices == target[:, None]
            totals += torch.stack((hits[:, 0].sum(), hits.sum(), hits.new_tensor(len(target), dtype=torch.long)))
        if dist.is_initialized():
            dist.all_reduce(totals)
        top1, top5, count = totals.tolist()
        return 100 * top1 / max(1, count), 100 * top5 / max(1, count)

    def save(self, *names: str) -> None:
        state = {
            "model": self.bare.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "best_top1": self.best_top1,
        }
        for name in names:
            save_atomically(state, self.args.output / name)

    def load(self, path: Path) -> None:
        state = torch.load(path, map_location="cpu", weights_only=True)
        self.bare.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        # A run that ended inside an epoch restarts that epoch from its beginning.
        self.step = state["step"] - state["step"] % self.plan.steps_per_epoch
        self.best_top1 = state["best_top1"]
        self.world.say(f"resumed from {path} at step {self.step}")


def save_atomically(state: dict[str, object], path: Path) -> None:
    partial = path.with_suffix(".part")
    with partial.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def make_plan(args: argparse.Namespace, loader: DataLoader[Sample]) -> Plan:
    steps_per_epoch = len(loader) // args.accumulate
    if steps_per_epoch == 0:
        raise SystemExit("train.py: an epoch has fewer images than one step needs; lower --batch-size or --accumulate")
    return Plan(steps_per_epoch, args.steps or args.epochs * steps_per_epoch)


def train(args: argparse.Namespace, world: World) -> None:
    torch.manual_seed(args.seed)
    train_set, val_set, classes = make_datasets(args)
    train_loader, val_loader, sampler = make_loaders(args, world, train_set, val_set)
    plan = make_plan(args, train_loader)
    bare, model = make_model(args, world, classes)
    scaler = torch.amp.GradScaler(world.device.type, enabled=args.amp == "fp16")
    trainer = Trainer(args, world, plan, bare, model, make_optimizer(args, bare), scaler)
    if args.resume:
        trainer.load(args.resume)
    images_per_step = args.batch_size * args.accumulate * world.size
    world.say(
        f"{args.model} on {world.size} x {world.device.type}, {len(train_set)} images of {classes} classes, "  # type: ignore[arg-type]
        f"{images_per_step} images a step, {plan.steps} steps, amp {args.amp}, {args.workers} workers a process"
    )
    for epoch in range(trainer.step // plan.steps_per_epoch, plan.epochs):
        sampler.set_epoch(epoch)
        # augmentation differs by rank and epoch
        torch.manual_seed(((args.seed * 10_007) + epoch) * world.size + world.rank)
        trainer.train_epoch(train_loader, epoch)
        names = ["last.pt"]
        if not args.no_eval and ((epoch + 1) % args.eval_every == 0 or epoch + 1 == plan.epochs):
            top1, top5 = trainer.evaluate(val_loader)
            world.say(f"epoch {epoch}  validation  top1 {top1:.2f} %  top5 {top5:.2f} %")
            if top1 > trainer.best_top1:
                trainer.best_top1 = top1
                names.append("best.pt")
        if args.output and world.rank == 0:
            trainer.save(*names)


def run(args: argparse.Namespace, rank: int, local_rank: int, world_size: int, *, init_method: str | None) -> None:
    """Runs one process of the job, however it was started."""
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    world = join_world(rank, local_rank, world_size, device_name=args.device, init_method=init_method)
    if world.device.type == "cuda":
        torch.backends.cudnn.benchmark = not args.deterministic
        torch.set_float32_matmul_precision("high")
    elif args.sync_bn:
        raise SystemExit("train.py: --sync-bn needs GPUs")
    if args.output and rank == 0:
        args.output.mkdir(parents=True, exist_ok=True)
    train(args, world)
    if dist.is_initialized():
        dist.barrier()  # leave together: gloo sometimes aborts a rank whose peers have left
        dist.destroy_process_group()


def number(kind: Callable[[str], float], lowest: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = kind(text)
        if not value >= lowest:
            raise argparse.ArgumentTypeError(f"must be {lowest} or more")
        return value

    parse.__name__ = kind.__name__
    return parse


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--data", type=Path, help="folder with train/ and val/")
    add("--synthetic", action="store_true", help="random tensors from memory instead of --data")
    add("--synthetic-images", type=number(int, 1), default=1280, metavar="N")
    add("--model", default="resnet50", choices=torchvision.models.list_models(torchvision.models), metavar="NAME")
    add("--image-size", type=number(int, 1), default=224)
    add("--batch-size", type=number(int, 1), default=64, help="images a process and micro-batch")
    add("--accumulate", type=number(int, 1), default=1, help="micro-batches a step")
    add("--workers", type=number(int, 0), default=4, help="loader workers a process; 0: load in the training process")
    add("--epochs", type=number(int, 1), default=90)
    add("--steps", type=number(int, 1), help="train this many steps instead of --epochs")
    add("--lr", type=number(float, 0), default=0.1, help="for 256 images a step; scaled to the real number")
    add("--schedule", choices=("cosine", "step"), default="cosine")
    add("--decay-epochs", type=number(int, 1), default=30, help="for --schedule step: a tenth every so many epochs")
    add("--warmup-epochs", type=number(float, 0), default=5)
    add("--momentum", type=number(float, 0), default=0.9)
    add("--weight-decay", type=number(float, 0), default=1e-4)
    add("--no-decay-norm-bias", action="store_true", help="no weight decay on norms and biases")
    add("--label-smoothing", type=number(float, 0), default=0.1)
    add("--clip-norm", type=number(float, 0), default=0.0, help="clip the gradient's norm; 0: never")
    add("--amp", choices=("off", *AMP_DTYPES), default="off")
    add("--channels-last", action="store_true")
    add("--sync-bn", action="store_true")
    add("--compile", action="store_true")
    add("--device", choices=("auto", "cpu", "cuda"), default="auto")
    add("--seed", type=number(int, 0), default=0)
    add("--deterministic", action="store_true")
    add("--output", type=Path, help="folder for checkpoints (last.pt, best.pt); none: keep nothing")
    add("--resume", type=Path, metavar="CHECKPOINT")
    add("--print-every", type=number(int, 1), default=10, metavar="STEPS")
    add("--eval-every", type=number(int, 1), default=1, metavar="EPOCHS")
    add("--no-eval", action="store_true")
    args = parser.parse_args(argv)
    if not args.synthetic and (args.data is None or not (args.data / "train").is_dir()):
        parser.error("--data needs a folder with train/ and val/ (or train with --synthetic)")
    return args


def main() -> None:
    args = parse_arguments()
    if "RANK" in os.environ:  # torchrun, or a launcher that sets the same variables
        rank, local_rank, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
        run(args, rank, local_rank, size, init_method="env://")
    else:
        run(args, 0, 0, 1, init_method=None)


if __name__ == "__main__":
    main()
