"""What does not change from step to step: loaders with file and line, DDP's options, versions. One small JSON file per process."""

from __future__ import annotations

import gc
import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_OWN = os.path.dirname(os.path.abspath(__file__))


class Facts:
    """A JSON object that is written whole, atomically, whenever it changed; called at set-up moments, never every step."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, "facts-%d.json" % os.getpid())
        self.values: dict[str, Any] = {}
        self.active = False  # nothing is written before the process has shown what it is

    def set(self, key: str, value: Any) -> None:
        if self.values.get(key) != value:
            self.values[key] = value
            self.write()

    def write(self) -> None:
        if not self.active:
            return
        self.values.update(changing_facts())
        partial = self._path + ".new"
        with open(partial, "w") as file:
            json.dump(self.values, file, default=str)
        os.replace(partial, self._path)


def call_site(skip_prefixes: tuple[str, ...] = ()) -> tuple[str, int]:
    """(file, line) of the user's code that called: the innermost frame outside torch, this recorder and installed packages.

    A frame of an installed package is taken when there is no better one.
    """
    frame: FrameType | None = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_OWN) and not name.startswith("<") and not any(p in name for p in skip_prefixes):
            if "site-packages" not in name and "dist-packages" not in name and not _standard(name):
                return name, frame.f_lineno
            if fallback is None:
                fallback = (name, frame.f_lineno)
        frame = frame.f_back
    return fallback or ("", 0)


def _standard(name: str) -> bool:
    return name.startswith(os.path.dirname(os.__file__))


TORCH = (os.sep + "torch" + os.sep,)


def describe_dataset(dataset: Any, depth: int = 0) -> dict[str, Any]:
    """Class, length, root folder and transforms of a dataset, as far as they can be read without touching data."""
    facts: dict[str, Any] = {"class": "%s.%s" % (type(dataset).__module__, type(dataset).__qualname__)}
    try:
        facts["length"] = len(dataset)
    except Exception:
        facts["length"] = None  # an IterableDataset has none
    for name in ("root", "root_dir", "data_dir", "path", "img_dir"):
        value = getattr(dataset, name, None)
        if isinstance(value, (str, os.PathLike)):
            facts["root"] = os.path.abspath(os.fspath(value))
            break
    transform = getattr(dataset, "transform", None)
    if transform is not None:
        steps = getattr(transform, "transforms", None)
        named = steps if isinstance(steps, (list, tuple)) else [transform]
        facts["transforms"] = [getattr(step, "__qualname__", type(step).__name__) for step in named][:20]
    inner = getattr(dataset, "dataset", None)  # Subset and most wrappers
    if inner is not None and depth < 3:
        facts["inner"] = describe_dataset(inner, depth + 1)
        facts.setdefault("root", facts["inner"].get("root"))
    return facts


def describe_loader(loader: Any, site: tuple[str, int]) -> dict[str, Any]:
    """The arguments that decide a DataLoader's speed, and where it was made."""
    facts: dict[str, Any] = {"file": site[0], "line": site[1], "class": type(loader).__qualname__}
    for name in (
        "batch_size",
        "num_workers",
        "pin_memory",
        "prefetch_factor",
        "persistent_workers",
        "drop_last",
        "timeout",
    ):
        value = getattr(loader, name, None)
        facts[name] = value if isinstance(value, (int, float, bool, str, type(None))) else str(value)
    sampler = getattr(loader, "sampler", None)
    facts["sampler"] = type(sampler).__qualname__
    facts["collate"] = getattr(getattr(loader, "collate_fn", None), "__qualname__", None)
    facts["dataset"] = describe_dataset(getattr(loader, "dataset", None))
    return facts


def process_facts(torch: Any) -> dict[str, Any]:
    """Who this process is: versions, rank as the launcher said, threads, device."""
    facts: dict[str, Any] = {
        "pid": os.getpid(),
        "python": "%d.%d.%d" % sys.version_info[:3],
        "torch": getattr(torch, "__version__", None),
        "argv": list(sys.argv[:64]),
        "environment_rank": {
            name: os.environ.get(name)
            for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
        },
        "cpus_allowed": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "cuda": None,
    }
    cuda = torch.cuda
    if cuda.is_initialized():
        device = cuda.current_device()
        properties = cuda.get_device_properties(device)
        facts["cuda"] = {
            "device": device,
            "name": properties.name,
            "capability": [properties.major, properties.minor],
            "memory_bytes": properties.total_memory,
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "tf32_matmul": torch.backends.cuda.matmul.allow_tf32,
            "tf32_cudnn": torch.backends.cudnn.allow_tf32,
            "cudnn_benchmark": torch.backends.cudnn.benchmark,
        }
    return facts


def changing_facts() -> dict[str, Any]:
    """What a script may set after its first backward pass, or what grows: looked up whenever the facts are written."""
    facts: dict[str, Any] = {
        # not how many objects are frozen: the interpreter counts them one by one
        "gc": {
            "enabled": gc.isenabled(),
            "collections": [generation["collections"] for generation in gc.get_stats()],
        }
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        facts["threads"] = torch.get_num_threads()
    return facts


def distributed_identity(torch: Any) -> tuple[int, int, int]:
    """(rank, local rank, world size), -1 where unknown: the process group knows best, then the launcher's variables."""
    rank, world = _number("RANK"), _number("WORLD_SIZE")
    try:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    except (RuntimeError, ValueError):
        pass  # a group that is being torn down: the variables stand
    return rank, _number("LOCAL_RANK"), world


def _number(name: str) -> int:
    try:
        return int(os.environ.get(name, ""))
    except ValueError:
        return -1
