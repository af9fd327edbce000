"""Records as ranks and workers would write them, and small file systems that fill up. Not a test."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    COMM_FIELDS,
    GPU_STEP_FIELDS,
    PROFILED_FIELDS,
    PART_FIELDS,
    SPAN_CODE,
    SPAN_FIELDS,
    STEP_FIELDS,
)

T0_NS = 1_000_000_000_000  # the process starts some time after boot
MS = 1_000_000

Row = tuple[int, tuple[int, ...]]


def _payload(fields: tuple[str, ...], values: dict[str, int]) -> tuple[int, ...]:
    unknown = values.keys() - set(fields)
    assert not unknown, unknown
    return tuple(values.get(name, 0) for name in fields)


def step_row(step: int, *, start_ns: int | None = None, took_ns: int = 10 * MS, flags: int = 0, **more: int) -> Row:
    """A step of 10 ms: 2 input wait, 3 forward, 4 backward, 1 optimizer; the 10 ms scale with `took_ns`."""
    start_ns = T0_NS + step * 10 * MS if start_ns is None else start_ns
    tenth = took_ns // 10
    values = {
        "step": step,
        "t_start_ns": start_ns,
        "t_end_ns": start_ns + took_ns,
        "input_wait_ns": 2 * tenth,
        "forward_ns": 3 * tenth,
        "backward_ns": 4 * tenth,
        "optimizer_ns": tenth,
        "samples": 32,
        "micro_batches": 1,
        "loader": 0,
    }
    return flags, _payload(STEP_FIELDS, values | more)


def gpu_row(step: int) -> Row:
    return 0, _payload(GPU_STEP_FIELDS, {"step": step, "forward_ns": 3 * MS})


def comm_row(step: int) -> Row:
    return 0, _payload(COMM_FIELDS, {"step": step, "iteration": step, "comm_ns": MS})


def span_row(label: str, step: int, start_ns: int, end_ns: int) -> Row:
    values = {"label": SPAN_CODE[label], "step": step, "t_start_ns": start_ns, "t_end_ns": end_ns, "count": 1}
    return 0, _payload(SPAN_FIELDS, values)


def batch_row(number: int, worker: int = 0) -> Row:
    end_ns = T0_NS + number * 10 * MS
    values = {"worker": worker, "t_start_ns": end_ns - 5 * MS, "t_end_ns": end_ns, "cpu_ns": 4 * MS, "samples": 32}
    return 0, _payload(BATCH_FIELDS, values)


def look_row(number: int) -> Row:
    end_ns = T0_NS + number * 100 * MS
    values = {"t_start_ns": end_ns - 5 * MS, "t_end_ns": end_ns, "samples": 32, "covered": 1, "cpu_ns": MS}
    return 0, _payload(PROFILED_FIELDS, values)


def part_row(number: int, part: int) -> Row:
    return 0, _payload(PART_FIELDS, {"t_end_ns": T0_NS + number * 100 * MS, "part": part, "cpu_ns": MS})


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mounts a tmpfs of that size; skips the test if this process may not."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        reason = str(getattr(error, "stderr", None) or error).splitlines()[0]
        pytest.skip(f"NOT TESTED, cannot mount a tmpfs here: {reason}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
