"""Recordings of ranks on two GPUs, with the driver's data about the GPUs. Not a test."""

from __future__ import annotations

from typing import Any

from recordings import plan, recording, series
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Series

A100 = "NVIDIA A100-SXM4-40GB"
GIB = 1 << 30


def device(index: int, **given: Any) -> dict[str, Any]:
    """A GPU as the agent records it."""
    usual = {"name": A100, "uuid": f"GPU-0000000{index}-aaaa", "pci_bus_id": f"0:{index}0:0", "nvlinks": 0}
    return {"index": index, "mem_total_bytes": 40 * GIB, "pcie_gen_max": 4, "pcie_width_max": 16, **usual, **given}


def cuda(uuid: str | None = None, **given: Any) -> dict[str, Any]:
    return {"cuda": {"device": 0, "uuid": uuid, "visible": None, "memory_bytes": 40 * GIB, **given}}


def levels(value: float, seconds: int = 10) -> Series:
    return series(*((t, value) for t in range(seconds)))


def recorded(
    samples: dict[tuple[str, str], Series] | None = None,
    devices: list[dict[str, Any]] | None = None,
    facts: dict[int, dict[str, Any]] | None = None,
    **more: Any,
) -> Recording:
    """A recording of nine seconds with two ranks, on GPUs 0 and 1 unless the facts say otherwise."""
    known = [device(0), device(1)] if devices is None else devices
    environment = {"gpus": known, **more.pop("environment", {})}
    who = facts or {100: cuda("00000000-aaaa"), 101: cuda("00000001-aaaa")}
    about = {"meta": {"environment": environment}, "facts": who, "samples": samples or {}}
    return recording({0: plan(90), 1: plan(90)}, **about, **more)


def on_gpus(*facts: Any, **more: Any) -> Analysis:
    return analyse(recorded(*facts, **more))


def of(analysis: Analysis, name: str, index: int = 1) -> float | None:
    return analysis.values.get((name, index))
