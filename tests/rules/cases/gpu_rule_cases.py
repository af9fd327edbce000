"""Jobs on GPUs: throttled, capped, full, shared, badly linked, broken, far from their CPUs. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.analysis.gpu.gpu_errors import links_due
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu, GpuMemoryTrend, GpuPath, GpuView, Xid
from rule_cases import job, rank

GIB = 1 << 30


KIND = "NVIDIA A100-SXM4-40GB"


def gpu(index: int, **given: Any) -> Gpu:
    """One A100 with a rank of the same number."""
    usual = {
        "ranks": (index,),
        "mem_total_bytes": 40.0 * GIB,
        "power_limit_default_w": 400.0,
        "sm_clock_max_mhz": 1410.0,
        "pcie_gen_max": 4,
        "pcie_width_max": 16,
        "nvlinks": 12,
        "nvlink_switched": True,
        "numa_node": 0,
    }
    return Gpu(index, given.pop("name", KIND), **{**usual, **given})


def on_gpus(
    values: dict[str, dict[int, float]], *, gpus: tuple[Gpu, ...] | None = None, slow: float = 0.6, **more: Any
) -> Analysis:
    """Two ranks on a GPU each; rank 1 computes the whole step but for `wire_s`, rank 0 `slow` of it. `values` by GPU.

    `blind`: by value, the GPU or the rank of which it was not read.
    """
    blind = more.pop("blind", {})
    view = GpuView(gpus or (gpu(0), gpu(1)), more.pop("paths", ()), more.pop("trends", ()))
    made = job(
        {0: rank(slow), 1: rank(1.0 - more.get("wire_s", 0.0))},
        values=more.pop("ranks", {}),
        **{"gpu_view": view, **more},
    )
    found = {(name, n): float(v) for name, by_gpu in values.items() for n, v in by_gpu.items()}
    unread = set(blind.items())
    known = {key: value for key, value in {**made.values, **found}.items() if key not in unread}
    active = {gpu.index: n for gpu in view.used if (n := known.get(("gpu.nvlinks_active", gpu.index))) is not None}
    due = {("gpu.nvlinks_due", n): links for n, links in links_due(view.used, active).items()}
    return replace(made, values={**known, **due})


SOUND = {
    "gpu.throttled_share": 0.0,
    "gpu.power_capped_share": 0.8,  # full load at the full limit
    "gpu.clock_set_share": 0.0,
    "gpu.clock_mhz": 1370.0,
    "gpu.power_limit_w": 400.0,
    "gpu.foreign_processes": 0.0,
    "gpu.pcie_width": 16.0,
    "gpu.pcie_gen": 4.0,
    "gpu.errors_watched": 5.0,
    "gpu.hardware_xids": 0.0,
    "gpu.uncorrected_errors": 0.0,
    "gpu.nvlinks_active": 12.0,
    "gpu.nvlinks_due": 12.0,
    "gpu.nvlink_recoveries": 0.0,
    "gpu.nvlink_crc_per_s": 0.0,
}


def sound_view() -> GpuView:
    return GpuView((gpu(0), gpu(1)), (GpuPath(0, 1, "NV12", "OK"),))


def sound_values() -> dict[tuple[str, int], float]:
    """Measures of two healthy GPUs."""
    return {(name, n): value for name, value in SOUND.items() for n in (0, 1)}


def gpu001(
    share: float = 0.6, clock: float | None = 900.0, peer: float | None = 1370.0, kind: str = "hw_thermal", **more: Any
) -> Analysis:
    """GPU 1 is held down for `share` of the time and runs at `clock`; its peer is sound."""
    values = {
        "gpu.throttled_share": {0: 0.0, 1: share},
        f"gpu.{kind}_share": {0: 0.0, 1: share},
        "gpu.temp_c": {0: 58, 1: 91},
    }
    clocks = {0: peer, 1: clock}
    values["gpu.clock_mhz"] = {n: mhz for n, mhz in clocks.items() if mhz is not None}
    return on_gpus(values, **more)


def trend(
    per_step: float = 2.0,
    steps: float = 300.0,
    *,
    first: float = 10_000.0,
    bend: float = 0.5,
    left: float | None = 20_000.0,
    batches: float = 1.0,
) -> GpuMemoryTrend:
    """`per_step` MB on top of `first`; `bend` of what it grows falls in the first half, and batches grow to so many times their size."""
    grown = per_step * steps * 2 / 3
    thirds = (first, first + bend * grown, first + grown)
    return GpuMemoryTrend(1, 1, steps, steps * 1.0, thirds, per_step, left, batches)


def gpu004(trends: tuple[GpuMemoryTrend, ...] | None = None, **more: Any) -> Analysis:
    grown = {name: more.pop(name) for name in ("per_step", "steps", "first", "bend", "left", "batches") if name in more}
    ranks = {"gpu.memory_watched": {0: 60, 1: 60}}
    return on_gpus({}, ranks=ranks, trends=(trend(**grown),) if trends is None else trends, **more)


def gpu005(count: float = 1.0, sm: float | None = 0.3, held_mb: float = 4000.0, **more: Any) -> Analysis:
    """A stranger on GPU 1."""
    values = {"gpu.foreign_processes": {0: 0, 1: count}, "gpu.foreign_mem_mb": {0: 0, 1: held_mb}}
    if sm is not None:
        values["gpu.foreign_sm_share"] = {0: 0, 1: sm}
    return on_gpus(values, **more)


def gpu007(xids: tuple[int, ...] = (94,), **values: Any) -> Analysis:
    """Errors of GPU 1: Xids 40 s after the start, and what the driver counted."""
    more = {name: values.pop(name) for name in ("deaths", "stalls", "steady", "blind") if name in values}
    gpus = (gpu(0), gpu(1, xids=tuple(Xid(40.0, code) for code in xids), ecc=values.pop("ecc", None)))
    values = {
        "gpu.errors_watched": {0: 5, 1: 5},
        "gpu.hardware_xids": {0: 0, 1: sum(code not in PROGRAMS_XIDS for code in xids)},
        "gpu.uncorrected_errors": {0: 0, 1: values.pop("uncorrected_errors", 0)},
        **{f"gpu.{name}": {1: value} for name, value in values.items()},
    }
    return on_gpus(values, gpus=gpus, **more)


def on_two_hosts(per_host: int = 2) -> tuple[Gpu, ...]:
    """Numbered through; each host counts its own from 0."""
    return tuple(
        gpu(place * per_host + number, host=host, index_on_host=number)
        for place, host in enumerate(("node-a", "node-b"))
        for number in range(per_host)
    )
