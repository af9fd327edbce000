"""Jobs on GPUs: throttled, capped, full, shared, badly linked, broken, far from their CPUs. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rule_cases import META, job, rank

from rn50_advisor.advisor.analysis.gpu.gpu_errors import links_due
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu, GpuMemoryTrend, GpuPath, GpuView, Xid

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
    found = {(name, f"gpu:{n}"): float(v) for name, by_gpu in values.items() for n, v in by_gpu.items()}
    unread = {(name, f"{kind}:{n}") for name, n in blind.items() for kind in ("gpu", "rank")}
    known = {key: value for key, value in {**made.values, **found}.items() if key not in unread}
    active = {
        gpu.index: n for gpu in view.used if (n := known.get(("gpu.nvlinks_active", f"gpu:{gpu.index}"))) is not None
    }
    due = {("gpu.nvlinks_due", f"gpu:{n}"): links for n, links in links_due(view.used, active).items()}
    return replace(made, values={**known, **due})


SOUND = {
    "gpu.throttled_share": 0.0,
    "gpu.power_capped_share": 0.8,  # full load at the full limit
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


def sound_values() -> dict[tuple[str, str], float]:
    """Of two GPUs with nothing wrong."""
    return {(name, f"gpu:{n}"): value for name, value in SOUND.items() for n in (0, 1)}


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


def gpu002(
    capped: float = 0.9, clock: float = 1000.0, peer: float = 1400.0, limit: float = 400.0, **more: Any
) -> Analysis:
    """GPU 1 is at its power limit and runs at `clock`."""
    values = {
        "gpu.power_capped_share": {0: more.pop("other", 0.0), 1: capped},
        "gpu.clock_mhz": {0: peer, 1: clock},
        "gpu.power_limit_w": {0: 400.0, 1: limit},
    }
    return on_gpus(values, **more)


def gpu003(
    retries: float = 4.0, reserved: float = 0.5, peak: float = 0.5, pieces: float = 0.2, **more: Any
) -> Analysis:
    """Rank 1's allocator; rank 0 is at ease."""
    ranks = {
        "gpu.memory_watched": {0: 60, 1: 60},
        "gpu.alloc_retries": {0: 0, 1: retries},
        "gpu.reserved_share": {0: 0.5, 1: reserved},
        "gpu.peak_share": {0: 0.4, 1: peak},
        "gpu.fragmented_share": {0: 0.5, 1: pieces},
    }
    return on_gpus({}, ranks=ranks, **more)


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


def gpu006(
    width: float = 4,
    gen: float = 4,
    carried: float | None = 6000.0,
    *,
    copied: tuple[float, float] | None = None,
    near: float | None = 1.0,
    other: tuple[float, float] = (16, 4),
    **more: Any,
) -> Analysis:
    """GPU 1's link; sixteen lanes of the fourth generation carry 26 GB/s. `copied`: MB/s of both GPUs in a deep window.

    `other`: lanes and generation of GPU 0's.
    """
    values = {"gpu.pcie_width": {0: other[0], 1: width}, "gpu.pcie_gen": {0: other[1], 1: gen}}
    if carried is not None:
        values["gpu.pcie_rx_mb_per_s"] = {0: 900.0, 1: carried}
    ranks = {"gpu.near_cpu_share": {0: 1.0} if near is None else {0: 1.0, 1: near}}
    if copied is not None:
        ranks["kernel.pinned_mb_per_s"] = dict(enumerate(copied))
    return on_gpus(values, ranks=ranks, **more)


def gpu007(xids: tuple[int, ...] = (94,), **told: Any) -> Analysis:
    """Errors of GPU 1: Xids 40 s after the start, and what the driver counted."""
    more = {name: told.pop(name) for name in ("deaths", "stalls", "steady", "blind") if name in told}
    gpus = (gpu(0), gpu(1, xids=tuple(Xid(40.0, code) for code in xids), ecc=told.pop("ecc", None)))
    values = {
        "gpu.errors_watched": {0: 5, 1: 5},
        "gpu.hardware_xids": {0: 0, 1: sum(code not in PROGRAMS_XIDS for code in xids)},
        "gpu.uncorrected_errors": {0: 0, 1: told.pop("uncorrected_errors", 0)},
        **{f"gpu.{name}": {1: value} for name, value in told.items()},
    }
    return on_gpus(values, gpus=gpus, **more)


def gpu008(
    active: float = 9.0, peer: float = 12.0, recoveries: float = 0.0, damaged: float = 0.0, **more: Any
) -> Analysis:
    """GPU 1's links; on the wire the step loses 0.3 s."""
    values = {
        "gpu.nvlinks_active": {0: peer, 1: active},
        "gpu.nvlink_recoveries": {0: 0, 1: recoveries},
        "gpu.nvlink_crc_per_s": {0: 0, 1: damaged},
    }
    return on_gpus(values, **{"slow": 0.2, "wire_s": 0.3, **more})


FAR = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "PIX", "OK"), GpuPath(1, 2, "SYS", "OK"))


def com008(
    wire: float | None = 0.3,
    paths: tuple[GpuPath, ...] = (GpuPath(0, 1, "NV12", "OK"),),
    variables: dict[str, str] | None = None,
    devices: int = 2,
    idle: float | None = 1.0,
    **more: Any,
) -> Analysis:
    """Two ranks on GPUs 0 and 1 of so many, with NCCL_P2P_DISABLE unless told otherwise; `wire` seconds of the step on the wire.

    `idle`: whether the other GPUs are.
    """
    told = {"NCCL_P2P_DISABLE": "1"} if variables is None else variables
    meta = replace(META, environment={"variables": told})
    gpus = (gpu(0), gpu(1), *(gpu(n, ranks=()) for n in range(2, devices)))
    idles = {} if idle is None else {"gpu.idle": dict.fromkeys(range(2, devices), idle)}
    made = on_gpus(
        idles, gpus=gpus, paths=paths, ranks={"gpu.pairs": 1}, slow=0.2, wire_s=wire or 0.0, meta=meta, **more
    )
    if wire is not None:
        return made
    return replace(made, values={key: value for key, value in made.values.items() if key[0] != "comm.wire_s"})


def cpu004(near: float = 0.0, other: float = 1.0, **more: Any) -> Analysis:
    """Of the CPUs that rank 1 may use so many are near its GPU."""
    return on_gpus({}, ranks={"gpu.near_cpu_share": {0: other, 1: near}}, **more)
