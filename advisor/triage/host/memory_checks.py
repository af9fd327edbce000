"""Host memory: how much of it is ours, how its pages are, how fast it is, and the shared memory that loader workers need."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil

from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.triage.found_checks import Item, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.host.processor import cores_allowed
from rn50_advisor.probes.host.procfs import parse_keyed, read_text

SHM_LEAST_BYTES = 1 << 30
SHM_SOURCE = (
    "NVIDIA's containers ask for --shm-size=1g at least; Docker gives 64 MB unless told otherwise (rule DAT012)"
)
# A pair of arrays that no cache holds: the largest of today's processors have 384 MB of L3 for a core's share of 32.
ARRAY_BYTES = 128 << 20
_THREADS_MOST = 16  # more of them saturate any socket
_MEMORY_MOST = 1_900_000_000  # bytes of all their arrays: the user gave no consent to more
_PART_OF_FREE = 0.25
_SECONDS = 1.0
_COPY_GB_PER_S = 6.8
COPY_BAND = Band(
    0.75 * _COPY_GB_PER_S,
    None,
    "0.75 × the slowest STREAM copy of Microsoft's table for cloud machines, 6.8 GB/s "
    "(microsoft.github.io/VirtualClient/docs/workloads/stream)",
)


def facts(watch: Watch, root: Path = Path("/")) -> Iterator[Item]:
    memory = psutil.virtual_memory()
    yield fact("memory.total_bytes", float(memory.total), "bytes")
    yield fact("memory.available_bytes", float(memory.available), "bytes")
    state = watch.limits()
    if state is None or state.memory is None:
        hint = "mount /sys/fs/cgroup into the container: a memory limit could kill the job without warning"
        yield TriageGap("memory.limit_bytes", "our memory control group cannot be seen", hint)
    elif state.memory.limit_bytes is None:
        yield fact("memory.limit_bytes", "none")
    else:
        yield fact("memory.limit_bytes", float(state.memory.limit_bytes), "bytes", hint="of our control group")
    text = read_text(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = text[text.index("[") + 1 : text.index("]")] if text and "[" in text else None
    yield fact("memory.transparent_hugepages", chosen, hint="" if chosen else "/sys does not show it")
    yield from _huge_pages(root)
    yield from _by_node(root)
    yield from shared_memory(root)


def _huge_pages(root: Path) -> Iterator[Item]:
    """Reserved huge pages: they are lost to every process that does not use them."""
    counts = parse_keyed((read_text(root / "proc/meminfo") or "").encode())
    for name, what in ((b"HugePages_Total", "total"), (b"HugePages_Free", "free")):
        if name in counts:
            yield fact(f"memory.hugepages_{what}", float(counts[name]), "pages")


def _by_node(root: Path) -> Iterator[Item]:
    """A node with little of its own gets it from afar."""
    for node in sorted(root.glob("sys/devices/system/node/node[0-9]*"), key=lambda path: int(path.name[4:])):
        for line in (read_text(node / "meminfo") or "").splitlines():
            if ":" in line and line.partition(":")[0].endswith("MemTotal"):
                yield fact(f"numa.{node.name[4:]}.memory_bytes", 1024.0 * float(line.split()[-2]), "bytes")


def shared_memory(root: Path = Path("/")) -> Iterator[Item]:
    try:
        space = os.statvfs(root / "dev/shm")
    except OSError as error:
        yield TriageGap("memory.shm_bytes", f"/dev/shm: {error.strerror}", "loader workers pass batches through it")
        return
    size = space.f_blocks * space.f_frsize
    hint = (
        f"/dev/shm has {fmt.bytes_(size)}: loader workers die with a bus error when it is full; "
        "docker run --shm-size=8g or --ipc=host, in Kubernetes an emptyDir of medium Memory"
    )
    band = Band(float(SHM_LEAST_BYTES), None, SHM_SOURCE)
    yield judged("memory.shm_bytes", float(size), "bytes", band, remedy="fix", hint=hint, why=hint)
    free = float(space.f_bavail * space.f_frsize)
    full = 0.1 * size
    hint = f"only {fmt.bytes_(free)} of it is free: see ls -l /dev/shm for what fills it"
    band = Band(full, None, "rule DAT012: when it is nine tenths full there is no room for a batch")
    yield judged("memory.shm_free_bytes", free, "bytes", band, remedy="fix", strict=True, hint=hint, why=hint)


def speed(setting: TriageOptions, watch: Watch) -> Iterator[Item]:
    """Measures copies by one core and by all allowed ones, in CPU time per thread, so that a quota or a neighbour has no effect."""
    threads = max(1, min(round(cores_allowed(watch)), _THREADS_MOST))
    free_bytes = _PART_OF_FREE * _free_bytes(watch)
    if free_bytes < 2 * ARRAY_BYTES:
        hint = "free some of it, or raise the limit of the container"
        yield TriageGap(
            "memory.copy_gb_per_s", f"too little memory is free for arrays of {fmt.bytes_(ARRAY_BYTES)}", hint
        )
        return
    alone = _copy_gb_per_s(1, _SECONDS, ARRAY_BYTES)
    if alone is None:
        hint = "a limit on address space (ulimit -v) or on memory refused them"
        yield TriageGap("memory.copy_gb_per_s", f"no room for arrays of {fmt.bytes_(ARRAY_BYTES)}", hint)
        return
    hint = f"copying memory takes {1 / max(alone, 1e-9):.2g} s per GB on one core: another job on the socket, or a slower kind of machine"
    yield judged(
        "memory.copy_gb_per_s",
        alone,
        "GB/s",
        COPY_BAND,
        remedy="hand-back",
        needs_cores=True,
        hint=hint,
        why=hint,
    )
    if threads > 1:
        each = int(min(ARRAY_BYTES, min(free_bytes, _MEMORY_MOST) / 2 / threads)) // 8 * 8
        together = _copy_gb_per_s(threads, _SECONDS * (3 if setting.full else 1), each)
        hint = f"by {threads} threads together, as a DataLoader's workers would; read and written bytes counted"
        yield fact("memory.copy_all_cores_gb_per_s", together, "GB/s", hint=hint)


def _copy_gb_per_s(threads: int, seconds: float, array_bytes: int) -> float | None:
    """Copy bandwidth; None if a thread could not allocate its arrays."""
    rates: list[float] = []
    workers = [threading.Thread(target=_copy, args=(seconds, array_bytes, rates)) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(rates) if len(rates) == threads else None


def _copy(seconds: float, array_bytes: int, rates: list[float]) -> None:
    try:
        source = np.ones(array_bytes // 8)
        target = np.zeros_like(source)  # and one copy that is not counted: its pages come into being by it
    except MemoryError:
        return
    np.copyto(target, source)
    began, cpu_began = time.monotonic(), time.thread_time()
    copied = 0
    while not copied or time.monotonic() - began < seconds:
        np.copyto(target, source)
        copied += 2 * array_bytes
    rates.append(copied / 1e9 / max(time.thread_time() - cpu_began, 1e-9))


def _free_bytes(watch: Watch) -> float:
    free = float(psutil.virtual_memory().available)
    state = watch.limits()
    if state and state.memory and state.memory.limit_bytes is not None and state.memory.used_bytes is not None:
        held = state.memory.used_bytes - (state.memory.cache_bytes or 0)
        free = min(free, float(state.memory.limit_bytes - held))
    return max(0.0, free)
