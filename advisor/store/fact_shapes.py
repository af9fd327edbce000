"""What facts, events and the like may look like inside: analysis takes for granted that a `line` is a number and that `frames` is a list.

A name means the same wherever it stands, so one table of names does for all documents. Names that are not in it may hold anything: those
of a newer advisor, and those that nothing computes with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

_NUMBER_MAX = 1 << 62  # the sum of two fits 64 bits; nanoseconds since 1970 are 1.8e18
_DEPTH_MAX = 40  # a document of ours has seven levels

EVENT_NEEDS: Mapping[str, tuple[str, ...]] = {"interpreter": ("looks", "waiting")}


def misfit(document: Mapping[str, Any], needs: tuple[str, ...] = ()) -> str:
    """The first place that is not as it should be, `loaders.0.line is 'x'`; empty where there is none."""
    missing = [name for name in needs if document.get(name) is None]
    if missing:
        return f"{missing[0]} is missing"
    return next(filter(None, (_wrong(name, value, name, 1) for name, value in document.items())), "")


def _wrong(name: str, value: Any, place: str, depth: int) -> str:
    if depth > _DEPTH_MAX:
        return f"{place:.60} is nested too deeply"
    fits = _KINDS.get(name)
    if value is not None and fits is not None and not fits(value):
        return f"{place} is {value!r:.40}"
    if name == "flight" or (isinstance(value, dict) and name in _OF_OTHERS):
        return ""
    if isinstance(value, dict):
        children = ((key, inner, f"{place}.{key}") for key, inner in value.items())
    elif isinstance(value, list) and any(isinstance(row, (dict, list)) for row in value):
        children = (("", row, f"{place}.{number}") for number, row in enumerate(value))
    else:
        return ""
    return next(filter(None, (_wrong(*child, depth + 1) for child in children)), "")


def is_number(value: Any) -> bool:
    """One that arithmetic in 64 bits can hold; not NaN either."""
    return isinstance(value, (int, float)) and abs(value) <= _NUMBER_MAX


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_syncs(value: Any) -> bool:
    """Of a rank's facts an object; of a deep window the time they took."""
    return isinstance(value, dict) or is_number(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_numbers(value: Any, least: int = 0) -> bool:
    return isinstance(value, list) and len(value) >= least and all(map(is_number, value))


def _are_rows(value: Any, has: tuple[str, ...] = ()) -> bool:
    return isinstance(value, list) and all(
        isinstance(row, dict) and all(row.get(name) is not None for name in has) for row in value
    )


def _are_ranks(value: Any) -> bool:
    """Rows of a stall; of a flight dump an object with the ranks by number, and torch's own text of a group's."""
    if isinstance(value, dict):
        return all(map(str.isdecimal, value))
    return isinstance(value, str) or _are_rows(value, ("rank",))


def _are_stacks(value: Any) -> bool:
    """Of a profile rows; lines of text elsewhere."""
    return isinstance(value, list) and (_are_rows(value, ("count", "frames")) or all(map(_is_text, value)))


def _is_work(value: Any) -> bool:
    return isinstance(value, list) and all(_are_numbers(row, 4) for row in value)


def _holds(value: Any, kind: type | tuple[type, ...]) -> bool:
    return isinstance(value, dict) and all(isinstance(inner, kind) for inner in value.values())


_FOREIGN: Mapping[str, type | tuple[type, ...]] = {
    "classes": (int, float),
    "environment_rank": (str, type(None)),
    "layers": (int, float),
    "mounts": (dict, type(None)),
    "numa_nodes": list,
    "variables": str,
}
# Flight dumps are torch's documents (of a stalled rank a list of them), and read as such: see advisor/analysis/comm/flight_dumps.py.
_OF_OTHERS = frozenset((*_FOREIGN, "ranks"))
_KINDS: Mapping[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "a",
            "awake",
            "b",
            "batch_bytes",
            "begun",
            "blocked_ns",
            "bucket_cap_bytes",
            "budget",
            "calls",
            "collective_seq_id",
            "cores",
            "count",
            "elements",
            "gradient_bytes",
            "group_size",
            "index",
            "index_on_host",
            "learning_bytes",
            "least_ns",
            "line",
            "local_rank",
            "looks",
            "made",
            "main_thread",
            "mem_total_bytes",
            "memory_bytes",
            "momentum",
            "ms",
            "ns",
            "num_workers",
            "nvlink_mb_per_s",
            "nvlinks",
            "outside_share",
            "parameter_bytes",
            "parameters",
            "pcie_gen_gpu_max",
            "pcie_gen_max",
            "pcie_width_max",
            "phase_for_s",
            "pid",
            "power_limit_default_w",
            "power_limit_max_w",
            "prefetch_factor",
            "rank",
            "rdma_ports",
            "seen_ns",
            "share",
            "since_ns",
            "since_s",
            "sm_clock_max_mhz",
            "sockets",
            "span_s",
            "stalled_s",
            "state_bytes",
            "step",
            "swap_total_bytes",
            "synced_buffers",
            "time_created_ns",
            "total_parameter_size_bytes",
            "us",
            "waiting",
            "world_size",
            "written_unix_s",
        ),
        is_number,
    ),
    **dict.fromkeys(
        (
            "call",
            "clock_source",
            "command",
            "container",
            "cpu_model",
            "cwd",
            "disk",
            "driver",
            "driver_cuda",
            "fs_type",
            "function",
            "hostname",
            "hypervisor",
            "kernel",
            "library",
            "machine",
            "mount_point",
            "os",
            "pci_bus_id",
            "phase",
            "probe",
            "profiling_name",
            "python",
            "role",
            "root",
            "state",
            "through",
            "torch",
            "uuid",
        ),
        _is_text,
    ),
    **dict.fromkeys(
        (
            "collective",
            "collective_times",
            "conv",
            "convolutions",
            "cuda",
            "dataset",
            "exception",
            "gc",
            "linear",
            "optimizer",
            "pg_status",
            "pictures",
            "user",
        ),
        _is_object,
    ),
    **dict.fromkeys(("input_libraries", "lines"), _is_list),
    **dict.fromkeys(("bucket_bytes", "cpus_allowed", "shape", "weight_shape"), _are_numbers),
    **dict.fromkeys(
        ("copies", "ddp", "entries", "gpu_paths", "gpus", "mig_instances", "processes", "sites"), _are_rows
    ),
    "frames": partial(_are_rows, has=("file", "function", "line")),
    "save_sites": partial(_are_rows, has=("file", "line")),
    "loaders": _are_rows,
    "stacks": _are_stacks,
    "ranks": _are_ranks,
    "syncs": _is_syncs,
    "work": _is_work,
    **{name: partial(_holds, kind=kind) for name, kind in _FOREIGN.items()},  # inside, others than we give the names
}
