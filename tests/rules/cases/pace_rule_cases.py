"""Jobs on GPUs that compute plainly, wait, copy or launch too much. Two ranks alike, steps of one second. Not a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpu_rule_cases import gpu
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.forecast.batch_curve import BatchCurve
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, HostCopy, Wait
from rn50_advisor.advisor.model.report import Capacity
from rule_cases import SCRIPT, Phases, job, loader, rank

LINK_MB_PER_S = 26_000.0  # sixteen lanes of the fourth generation
TORCH = "2.8.0+cu128"


def paced(
    values: Mapping[str, float | None],
    *,
    own: Phases | None = None,
    on_gpu: Mapping[str, float | None] | None = None,
    rank_facts: Mapping[str, Any] | None = None,
    loads: float | None = None,
    **more: Any,
) -> Analysis:
    """`values` of each rank, `on_gpu` of each GPU (None: not measured); `loads`: batches a second that loading allows."""
    known = {name: {0: value, 1: value} for name, value in values.items() if value is not None}
    stages = () if loads is None else (Capacity("preprocessing", 16 * loads, 16 * loads, 16 * loads, ""),)
    view = GpuView((gpu(0), gpu(1)))
    facts = {"0": dict(rank_facts or {}), "1": dict(rank_facts or {})}
    spent = own or rank()
    made = job(
        {0: dict(spent), 1: dict(spent)},
        values=known,
        **{"gpu_view": view, "facts": facts, "capacities": stages, **more},
    )
    found = {(name, n): v for name, v in (on_gpu or {}).items() for n in (0, 1) if v is not None}
    return replace(made, values={**made.values, **found})


def copies(**given: Any) -> tuple[HostCopy, ...]:
    usual = {"mb": 77.0, "pinned": True, "non_blocking": True, "aside": False, "blocked_s": 0.001, "least_s": 0.001}
    return tuple(HostCopy(n, "to", SCRIPT, 61, phase="forward", **{**usual, **given}) for n in (0, 1))


def waits(**given: Any) -> tuple[Wait, ...]:
    usual = {
        "call": "item",
        "line": 88,
        "through": "",
        "phase": "gap",
        "calls": 1.0,
        "steps_share": 1.0,
        "blocked_s": 0.3,
    }
    return tuple(Wait(n, file=SCRIPT, function="train", **{**usual, **given}) for n in (0, 1))


def cmp001(
    half: float = 0.0,
    tf32: float = 0.0,
    capability: float = 8.0,
    paced_s: float = 0.0,
    *,
    tensor: float | None = None,
    eligible: float | None = None,
    **more: Any,
) -> Analysis:
    """Single precision on an A100; forward and backward take 0.9 s, of these `paced_s` at the pace of launches."""
    values = {
        "precision.half": half,
        "precision.tf32": tf32,
        "precision.capability": capability,
        "gpu.host_paced_s": paced_s,
        "kernel.tensor_core_share": tensor,
        "kernel.eligible_share": eligible,
    }
    return paced(values, **more)


def cmp003(
    paced_s: float = 0.6,
    resident: float | None = 0.5,
    delay: float = 0.0,
    deep: float | None = None,
    rank_facts: Mapping[str, Any] | None = None,
    *,
    gap: float = 0.0,
    waited: float | None = None,
    active: float | None = None,
    blocked: float | None = None,
    **more: Any,
) -> Analysis:
    """The GPU keeps up with the host for `paced_s`; some kernel is resident for `resident` of the time. It idles for `gap` between steps.

    `active`: share of its units with work, where the GPU counts it. The host waits for the GPU elsewhere for `blocked`.

    A deep window saw it idle for launches (`deep`) and after waits (`waited`).
    """
    values = {
        "gpu.host_paced_s": paced_s,
        "step.run_delay_s": delay,
        "kernel.idle_launch_share": deep,
        "kernel.idle_sync_share": waited,
        "gpu.idle_gap_s": gap,
        "gpu.peak_share": 0.2,
        "sync.blocked_s": blocked,
    }
    return paced(
        values,
        on_gpu={"gpu.util_share": resident, "gpu.sm_active_share": active},
        rank_facts=rank_facts or {"torch": TORCH, "optimizer": {"class": "SGD"}},
        **more,
    )


def cmp004(
    gap: float = 0.1,
    blocked: float = 0.4,
    calls: float = 1.0,
    looks: float = 12.0,
    *,
    fetch: float = 0.0,
    deep: float | None = None,
    held: float | None = None,
    host_paced: float | None = None,
    **more: Any,
) -> Analysis:
    """`.item()` in each step holds the host for `blocked`; the GPU idles for `gap` between steps and `fetch` while batches are fetched.

    A deep window saw it idle for `deep` after waits that took `held`. Events saw it at the host's pace for `host_paced`.
    """
    values = {
        "gpu.host_paced_s": host_paced,
        "sync.looks": looks,
        "sync.calls": calls,
        "sync.blocked_s": blocked,
        "gpu.idle_gap_s": gap,
        "gpu.idle_input_s": fetch,
        "kernel.idle_sync_share": deep,
        "kernel.sync_s": held,
    }
    own = rank(gap=gap, input_wait=fetch)
    return paced(values, own=own, **{"call_sites": CallSites(waits(blocked_s=blocked)), **more})


def _batches(
    fixed: float,
    peak: float,
    active: float | None,
    *,
    rates: Mapping[float, float] | None = None,
    oom_at: float | None = None,
    **more: Any,
) -> Analysis:
    """Batches of eight; `rates`: samples/s by batch, as a benchmark swept them."""
    values = {"batch.fixed_share": fixed, "gpu.peak_share": peak, "batch.samples": 8.0}
    loaders = tuple(loader(n, 4) for n in (0, 1))
    counted = {f"gpu.{name}_active_share": more.pop(name, None) for name in ("tensor", "dram")}
    made = paced(values, on_gpu={"gpu.sm_active_share": active, **counted}, **{"loaders": loaders, **more})
    if rates is None:
        return made
    curve = BatchCurve(8.0, tuple(rates), tuple(size / rate for size, rate in rates.items()), oom_at)
    benchmarked = {("batch.benchmarked", n): 1.0 for n in (0, 1)}
    return replace(made, values={**made.values, **benchmarked}, batch_curves={0: curve, 1: curve})


def cmp005(fixed: float = 0.6, peak: float = 0.3, active: float | None = 0.3, **more: Any) -> Analysis:
    return _batches(fixed, peak, active, **more)


def cmp006(fixed: float = 0.02, peak: float = 0.9, **more: Any) -> Analysis:
    return _batches(fixed, peak, None, **more)


def cmp009(
    paced_s: float = 0.0,
    benchmark: bool = False,
    usual: float | None = 1.0,
    *,
    optimizer: float = 0.0,
    half: float | None = 1.0,
    tf32: float | None = 1.0,
    fused: bool = True,
    rank_facts: Mapping[str, Any] | None = None,
    **more: Any,
) -> Analysis:
    """cudnn.benchmark is off; forward and backward take 0.9 s, of these `paced_s` at the pace of launches."""
    values = {
        "precision.capability": 8.0,
        "precision.half": half,
        "precision.tf32": tf32,
        "batch.usual_share": usual,
        "gpu.host_paced_s": paced_s,
    }
    facts = {
        "torch": TORCH,
        "cuda": {"cudnn_benchmark": benchmark},
        "conv": {"shape": [128, 3, 224, 224]},
        "optimizer": {"class": "SGD", "fused": fused},
        **(rank_facts or {}),
    }
    own = {**rank(), "optimizer": optimizer}
    return paced(values, own=own, rank_facts=facts, **more)


def _link(gen: float | None) -> dict[str, float | None]:
    return {"gpu.pcie_gen": gen, "gpu.pcie_width": None if gen is None else 16.0}


def h2d001(
    share: float = 0.2, slower: float = 2.5, gen: float | None = 4.0, deep: float | None = None, **more: Any
) -> Analysis:
    """Pageable copies hold the host `share` of the step at the least, `slower` times as long as pinned ones would take."""
    mb = share / slower * LINK_MB_PER_S
    values = {"copy.pageable_mb": mb, "copy.pageable_s": share, "kernel.pageable_s": deep}
    loaders = tuple(loader(n, 4) for n in (0, 1))
    sites = CallSites((), copies(mb=mb, pinned=False, non_blocking=False))
    return paced(values, on_gpu=_link(gen), **{"loaders": loaders, "call_sites": sites, **more})


def h2d002(share: float = 0.1, gap: float = 0.05, blocked: float = 0.4, **more: Any) -> Analysis:
    """Pinned copies that the link takes `share` of the step for; the host waits for them, and the GPU idles `gap` between steps."""
    mb = share * LINK_MB_PER_S
    values = {"copy.blocking_mb": mb, "copy.blocking_s": blocked, "gpu.idle_gap_s": gap, "gpu.idle_input_s": 0.0}
    sites = CallSites((), copies(mb=mb, non_blocking=False, blocked_s=blocked))
    return paced(values, own=rank(gap=gap), on_gpu=_link(4.0), **{"call_sites": sites, **more})


def sound_pace() -> dict[str, Any]:
    """Measures of two healthy ranks."""
    ranks = {
        "sync.looks": 12.0,
        "sync.calls": 0.0,
        "sync.blocked_s": 0.0,
        "gpu.idle_gap_s": 0.005,
        "gpu.idle_input_s": 0.005,
        "gpu.host_paced_s": 0.02,
        "copy.pageable_mb": 0.0,
        "copy.blocking_mb": 0.0,
        "precision.half": 1.0,
        "precision.bf16": 1.0,
        "precision.tf32": 1.0,
        "precision.capability": 8.0,
        "layout.channels_first": 0.0,
        "batch.samples": 8.0,
        "batch.usual_share": 0.99,
        "batch.fixed_share": 0.1,
        "parallel.devices": 1.0,
    }
    rates = {"reference.images_per_s": 15.0, "reference.observed_images_per_s": 16.0}
    return {**{name: {0: value, 1: value} for name, value in ranks.items()}, **rates}


def stepped_by(name: str, torch: str = "2.8.0", **more: Any) -> dict[str, Any]:
    return {"torch": f"{torch}+cu128", "optimizer": {"class": name, **more}}
