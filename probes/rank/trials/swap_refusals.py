"""Reasons to leave a running loader as it is, as words after "goes on as it is: ". Runs no code of the dataset."""

from __future__ import annotations

import itertools
import os
import sys
import types
from multiprocessing import process
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import datasets, own

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .loader_relay import LoaderOptions, LoaderParts

_CHANGEABLE = ("num_workers", "prefetch_factor", "pin_memory", "multiprocessing_context")
_MEMBERS_MAX = 100  # of each object, in two levels
_SHARE_MAX = 0.8  # of what is free
_MIB = 1 << 20
# Private memory of a worker of torch 2.14 with a small dataset: 11 MiB forked, 282 MiB otherwise.
_FORKED_BYTES, _FRESH_BYTES = 32 * _MIB, 300 * _MIB
_DESCRIPTORS_PER_WORKER = 5  # of the parent: two pipes and the worker's end
# Resources that a forked worker shares with its parent and must not use: packages and names of classes.
_PACKAGES = (
    "socket", "ssl", "sqlite3", "h5py", "lmdb", "netCDF4", "zipfile", "tarfile", "psycopg", "psycopg2", "pymysql", "redis", "pymongo",
)  # fmt: skip
_CLASSES = (
    "socket", "SSLSocket", "Connection", "connection", "Cursor", "cursor", "File", "Group", "Dataset", "Variable", "ZipFile", "TarFile",
    "Environment", "Transaction", "Redis", "MongoClient",
)  # fmt: skip
_FILES = ("FileIO", "BufferedReader", "BufferedWriter", "BufferedRandom", "BufferedRWPair", "TextIOWrapper")


def fault_of(options: dict[str, Any]) -> str:
    """Why no loader can have these options; empty if one may."""
    unknown = sorted(set(options) - set(_CHANGEABLE))
    if unknown:
        return "%s cannot be changed while a loader is read" % ", ".join(unknown)
    workers, prefetch = options.get("num_workers") or 0, options.get("prefetch_factor")
    if type(workers) is not int or workers < 0:
        return "num_workers is %r, which is no number of workers" % (workers,)
    if prefetch is not None and (type(prefetch) is not int or prefetch < 1):
        return "prefetch_factor is %r, which is no number of batches" % (prefetch,)
    context = options.get("multiprocessing_context")
    known = sys.modules["torch"].multiprocessing.get_all_start_methods()
    if isinstance(context, str) and context not in known:
        return "multiprocessing_context is %r, and this system has %s" % (context, ", ".join(known))
    return ""


def why_not(
    parts: LoaderParts, wanted: LoaderOptions, *, batch: tuple[int, int], worker: int | None = None, root: str = "/"
) -> str:
    """Why this loader cannot have these options now; empty if it can.

    `batch`: bytes and tensors of one. `worker`: a worker that runs already, as an example of what one needs.
    """
    reason = _never(parts)
    if reason or not wanted.num_workers:
        return reason or _without_device(wanted)
    if process.current_process()._config.get("daemon"):  # type: ignore[attr-defined]
        return "a daemonic process may not start workers"
    handle = open_handle([*reversed(datasets(parts.dataset)), parts.collate_fn])
    if handle:
        return "%s, which workers must not share with this process" % handle
    out = wanted.num_workers * (wanted.prefetch_factor or 1)
    return (
        _without_device(wanted)
        or _too_little_shared_memory(out + wanted.num_workers, batch[0], root)
        or _too_little_memory(wanted, (out + wanted.num_workers) * batch[0], worker, root)
        or _too_few_descriptors(wanted.num_workers * _DESCRIPTORS_PER_WORKER + out * batch[1], root)
    )


def _never(parts: LoaderParts) -> str:
    if parts._dataset_kind != sys.modules["torch.utils.data.dataloader"]._DatasetKind.Map:
        return "the workers of an IterableDataset share its samples out by their number"
    if any("MapDataPipe" in base.__name__ for base in type(parts.dataset).__mro__):
        return "workers shard data pipes by their number"
    if parts.persistent_workers:
        return "its workers are kept over all epochs (persistent_workers=True), so only a restart changes them"
    return ""


def _without_device(wanted: LoaderOptions) -> str:
    return "pinning memory takes an accelerator, and torch finds none" if wanted.pin_memory and not pins() else ""


def pins() -> bool:
    """True if there is a device to pin memory for."""
    torch: Any = sys.modules["torch"]
    accelerator = getattr(torch, "accelerator", None)  # since torch 2.6
    return bool((torch.cuda if accelerator is None else accelerator).is_available())


def open_handle(roots: list[Any]) -> str:
    """An open file, connection or running thread that one of these objects holds in two levels, in words."""
    for root in roots:
        for name, value in itertools.islice(own(root).items(), _MEMBERS_MAX):
            for each in (value, *_inside(value)):
                found = _handle(each)
                if found:
                    return "%s.%s holds %s" % (type(root).__qualname__, name, found)
    return ""


def _inside(value: Any) -> Iterator[Any]:
    if type(value) in (list, tuple):
        return itertools.islice(value, _MEMBERS_MAX)
    no_object = isinstance(value, (type, types.ModuleType, types.FunctionType))
    members = value if type(value) is dict else {} if no_object else own(value)
    return itertools.islice(members.values(), _MEMBERS_MAX)


def _handle(value: Any) -> str:
    for base in type(value).__mro__:
        package, name = base.__module__.partition(".")[0].lstrip("_"), base.__qualname__
        if (package == "io" and name in _FILES) or (package in _PACKAGES and name in _CLASSES):
            return "an open %s" % name if _is_open(value, package) else ""
        if package == "builtins" and name in ("Environment", "Transaction"):  # lmdb's classes name no module
            return "an open %s" % name
        if package == "threading" and name == "Thread" and value.is_alive():
            return "a running thread"
        if name == "ThreadPoolExecutor" and own(value).get("_threads") and not own(value).get("_shutdown"):
            return "running threads"
        if package == "torch" and name == "Tensor" and value.device.type != "cpu":
            return "a tensor on %s" % value.device.type
    return ""


def _is_open(value: Any, package: str) -> bool:
    try:
        if package == "h5py":
            return bool(value)
        if package in ("io", "socket", "ssl"):
            return bool(value.fileno() > 2)  # all processes share the standard streams
        if package == "zipfile":
            return value.fp is not None
    except (ValueError, OSError, AttributeError):  # closed, or around a buffer in memory
        return False
    except Exception:
        reraise_signal_exception()
    return getattr(value, "closed", False) is not True


def _too_little_shared_memory(batches: int, batch_bytes: int, root: str) -> str:
    try:
        seen = os.statvfs(os.path.join(root, "dev/shm"))
    except OSError:
        return ""
    free = seen.f_bavail * seen.f_frsize
    if batches * batch_bytes <= _SHARE_MAX * free:
        return ""
    return "%d batches of %s may be out, and /dev/shm has %s free" % (batches, _size(batch_bytes), _size(free))


def _too_little_memory(wanted: LoaderOptions, batches_bytes: int, worker: int | None, root: str) -> str:
    free = free_memory_bytes(root)
    if free is None:
        return ""
    context = wanted.context if wanted.context is not None else sys.modules["torch"].multiprocessing
    usual = _FORKED_BYTES if context.get_start_method() == "fork" else _FRESH_BYTES
    one = max(usual, 0 if worker is None else _private_bytes(worker, root))
    if wanted.num_workers * one + batches_bytes <= _SHARE_MAX * free:
        return ""
    need = _size(wanted.num_workers * one + batches_bytes)
    return "%d workers may take %s of memory, and %s is free" % (wanted.num_workers, need, _size(free))


def _too_few_descriptors(more: int, root: str) -> str:
    try:
        import resource

        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        used = len(os.listdir(os.path.join(root, "proc/self/fd")))
    except (OSError, ImportError):
        return ""
    if allowed < 0 or more <= _SHARE_MAX * (allowed - used):
        return ""
    return "it may open %d more files, and %d of %d are left" % (more, allowed - used, allowed)


def _size(size: float) -> str:
    return "%.1f GB" % (size / 1e9) if size >= 1e9 else "%.1f MB" % (size / 1e6)


def _private_bytes(pid: int, root: str) -> int:
    fields = _lines(os.path.join(root, "proc/%d/smaps_rollup" % pid))
    return sum(int(line.split()[1]) * 1024 for line in fields if line.startswith("Private_"))


def free_memory_bytes(root: str = "/") -> int | None:
    """Memory that may still be taken: the machine's, or less where a cgroup of this process limits it. None if unknown."""
    available = [
        int(line.split()[1]) * 1024
        for line in _lines(os.path.join(root, "proc/meminfo"))
        if line.startswith("MemAvailable")
    ]
    for line in _lines(os.path.join(root, "proc/self/cgroup")):
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top = os.path.join(root, "sys/fs/cgroup", controllers)
        names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        if not controllers:
            names = ("memory.max", "memory.current", "inactive_file")
        while True:
            available += _left(os.path.join(top, path.strip("/")), *names)
            if not path.strip("/"):
                break
            path = os.path.dirname(path.rstrip("/"))
    return min(available, default=None)


def _left(folder: str, limit: str, usage: str, cache: str) -> list[int]:
    """What a cgroup may still take, its cache of files counted as free; empty without a limit."""
    limits, used = _lines(os.path.join(folder, limit)), _lines(os.path.join(folder, usage))
    if not limits or not limits[0].isdigit() or not used:
        return []
    fields = (line.split() for line in _lines(os.path.join(folder, "memory.stat")))
    cached = sum(int(value) for name, value in fields if name == cache)
    return [max(0, int(limits[0]) - int(used[0]) + cached)]


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().splitlines()
    except OSError:
        return []
