"""Degraded PCIe link.

What it does: finds GPUs whose PCIe link, under load, has fewer lanes or a lower generation than GPU and slot support,
or than another GPU of the same model on this host has, or fewer lanes than the maker gave this model. It also finds
links that reach less bandwidth than their lanes and generation allow.

Fires when: ≥ 25 % of the bandwidth is missing under load, by the link's state or by the copies of a deep window; a note if all GPUs of
the host have the same link.

Why it is slow: images travel to the GPU over it, and gradients if there is no NVLink. Four lanes of sixteen carry a
quarter.

Evidence: generation and lanes under load, the best they could be, and the traffic on the link; the lanes in the data
sheet of this model, since the driver's own maximum is that of the slot; the rate of large copies from pinned memory in a
profiler window (`--deep`).

Fix: reseat the card or the riser, check the firmware's slot settings; on a rented machine, replace the instance. If all GPUs have
the same link, check the firmware's settings and the board's manual, which may say that its slots share their lanes. If
the driver calls a narrow link its maximum, the slot may have no more: use one that has.

Estimate: at worst nothing, because all copies overlap with the compute; at best the extra time that the link needed for
its traffic, until these ranks are as fast as the others. If the link was busy all the time, the best case is likely.

False alarms: an idle link drops to the first generation, so only readings under load count; if the load is unknown,
only links at full speed are used. Links that are equally slow for all of the job's GPUs of a model on a host follow
from how the machine was built: this is a note, without an estimate and without the advice to replace it. Models whose
lanes are in no table are judged by the driver's maximum alone; virtual machines may make up their slots, so the data
sheet alone gives less confidence. Copies of a
rank with no CPU close to its GPU cross the sockets and belong to CPU004. If the distance is unknown, copies are not
used either.
"""

from __future__ import annotations

from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_NEAR_CPU_SHARE,
    GPU_PCIE_GEN,
    GPU_PCIE_RX_MB_PER_S,
    GPU_PCIE_WIDTH,
)
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_PINNED_MB_PER_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    link_mb_per_s,
    listed,
    meets_within_passes,
    named,
    of_gpu,
    placed,
    ranks_on,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SHARED_LINK_RATIO_MIN = 0.9  # of the fastest: simultaneous copies of all GPUs share an upstream link
_SATURATED_SHARE = 0.8  # of the link's bandwidth: from there on copies cannot overlap
_DEFECT_FIX = "reseat {} or its riser, or replace the node"
_BUILT_SO_FIX = "check the BIOS slot settings: all GPUs here have the same link, possibly by design of the machine"
_SLOT_CONFIDENCE = 0.6  # a virtual machine may make up its slot
_SLOT_FIX = "move {} to a slot with {} lanes, or reseat it or its riser"


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    slow = [gpu for gpu in a.gpu_view.used if _missing(a, gpu) >= t["missing"]]
    if not slow:
        unknown = any(_link(a, gpu) is None for gpu in a.gpu_view.used)
        return clear_if_measured(RULE.id, *((GPU_PCIE_WIDTH,) if unknown else ()))
    slow = [gpu for gpu in slow if not built_so(a, gpu)] or slow
    built = built_so(a, slow[0])
    saving = None if built else _saving(a, slow)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    measured = any(of_gpu(a, GPU_PCIE_RX_MB_PER_S, gpu) is not None for gpu in slow)
    return Finding(
        rule=RULE.id,
        title=f"Degraded PCIe link: {listed(slow)}",
        # if the link's traffic is unknown, it may matter
        severity=severity(lost / a.value(STEP_TIME_S)) or ("low" if measured or built else "medium"),
        confidence=confidence(a, cap=_SLOT_CONFIDENCE if all(of_slot(a, gpu) for gpu in slow) else 0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, slow), gpus=tuple(gpu.index for gpu in slow)),
        evidence=tuple(e for gpu in slow[:3] for e in _evidence(a, gpu)),
        fixes=(Fix(_fix(a, slow), "", None, "outside the code"),),
        saving=saving if lost > 0 else None,
    )


def built_so(a: Analysis, gpu: Gpu) -> bool:
    """True if all of the job's GPUs of this model on its host, at least two, have the same link and copies over this one
    are not slower.
    """
    links = [
        (of_gpu(a, GPU_PCIE_GEN, other), of_gpu(a, GPU_PCIE_WIDTH, other))
        for other in a.gpu_view.used
        if other.is_like(gpu)
    ]
    link, (gen, width) = _link(a, gpu), links[0]
    if link is None or gen is None or width is None:
        return False
    return len(links) > 1 and len(set(links)) == 1 and link[0] == link_mb_per_s(gen, width)


def of_slot(a: Analysis, gpu: Gpu) -> bool:
    """True if only the maker's figure says that the link could have more lanes: the slot may have none."""
    gen, width = of_gpu(a, GPU_PCIE_GEN, gpu), of_gpu(a, GPU_PCIE_WIDTH, gpu)
    if gen is None or width is None or not gpu.pcie_gen_max or not gpu.pcie_width_max:
        return False
    return gen >= gpu.pcie_gen_max and gpu.pcie_width_max <= width < (gpu.pcie_width_due or 0)


def _fix(a: Analysis, slow: list[Gpu]) -> str:
    if built_so(a, slow[0]):
        return _BUILT_SO_FIX
    if all(of_slot(a, gpu) for gpu in slow):
        return _SLOT_FIX.format(placed(slow), slow[0].pcie_width_due)
    return _DEFECT_FIX.format(placed(slow))


def _link(a: Analysis, gpu: Gpu) -> tuple[float, float] | None:
    """(MB/s that the link carries in its present state, and at best)."""
    gen, width = of_gpu(a, GPU_PCIE_GEN, gpu), of_gpu(a, GPU_PCIE_WIDTH, gpu)
    if gen is None or width is None or not gpu.pcie_gen_max or not gpu.pcie_width_due:
        return None
    now, reached = link_mb_per_s(gen, width), _reached(a, gpu)
    return now if reached is None else min(now, reached), link_mb_per_s(gpu.pcie_gen_max, gpu.pcie_width_due)


def _reached(a: Analysis, gpu: Gpu) -> float | None:
    """MB/s of large copies from pinned memory; None if not measured or not conclusive for this link."""
    rates = {other.index: _copied(a, other) for other in a.gpu_view.used if other.host == gpu.host}
    own = rates.pop(gpu.index)
    others = [rate for rate in rates.values() if rate is not None]
    near, copying = a.by_rank(GPU_NEAR_CPU_SHARE), a.by_rank(KERNEL_PINNED_MB_PER_S)
    far = any(not near.get(rank) for rank in gpu.ranks if rank in copying)
    alike = own is not None and bool(others) and own >= _SHARED_LINK_RATIO_MIN * max(others)
    return None if far or alike else own


def _copied(a: Analysis, gpu: Gpu) -> float | None:
    return max((rate for r, rate in a.by_rank(KERNEL_PINNED_MB_PER_S).items() if r in gpu.ranks), default=None)


def _missing(a: Analysis, gpu: Gpu) -> float:
    link = _link(a, gpu)
    return 0.0 if link is None else 1.0 - link[0] / link[1]


def _saving(a: Analysis, slow: list[Gpu]) -> Saving | None:
    """The saving for the GPU whose link loses the most time, because the ranks wait for each other."""
    model, step = model_of(a), a.value(STEP_TIME_S)
    best = worst = step
    for gpu in slow:
        carried, link = of_gpu(a, GPU_PCIE_RX_MB_PER_S, gpu), _link(a, gpu)
        if carried is None or link is None:
            continue
        busy = min(1.0, carried / link[0])
        after = max(step * (1.0 - busy * (1.0 - link[0] / link[1])), _with_the_others(a, gpu))
        if after < best:
            best, worst = after, after if busy >= _SATURATED_SHARE else step
    return model.saving(best, worst, f"{listed(slow)} with its full link") if best < step else None


def _with_the_others(a: Analysis, gpu: Gpu) -> float:
    """The step with the ranks on this GPU as fast as the others: a sound link makes them no faster than that.

    Where ranks wait for each other in the middle of their passes, the others' pace is that of this link.
    """
    model = model_of(a)
    others = [rank for rank in model.own if rank not in gpu.ranks]
    if not others or meets_within_passes(a):
        return 0.0
    usual = {p: median([model.own[rank][p] for rank in others]) for p in ("input_wait", *COMPUTE)}
    changes = {
        (rank, p): min(model.own[rank][p], seconds)
        for rank in gpu.ranks
        if rank in model.own
        for p, seconds in usual.items()
    }
    return model.step_if(changes)


def _evidence(a: Analysis, gpu: Gpu) -> list[Evidence]:
    gen, width = of_gpu(a, GPU_PCIE_GEN, gpu) or 0.0, of_gpu(a, GPU_PCIE_WIDTH, gpu) or 0.0
    could = f"{gpu.pcie_width_due} lanes of generation {gpu.pcie_gen_max}"
    carried, link, reached = of_gpu(a, GPU_PCIE_RX_MB_PER_S, gpu), _link(a, gpu), _reached(a, gpu)
    note = f"{named(gpu)}: {width:.0f} lanes of generation {gen:.0f} under load, could be {could}"
    if of_slot(a, gpu):
        note += f", per data sheet; the driver's maximum here is {gpu.pcie_width_max}"
    found = [Evidence.of(GPU_PCIE_WIDTH, width, float(gpu.pcie_width_due or 0), note, gpu=gpu.index)]
    if reached is not None and link is not None and reached <= link[0]:
        note = f"{named(gpu)}: large copies from pinned memory; {could} carry {link[1]:.0f}"
        found = [Evidence.of(KERNEL_PINNED_MB_PER_S, reached, link[1], note, gpu=gpu.index), *found]
    if carried is not None and link is not None:
        note = f"{100 * min(1.0, carried / link[0]):.0f} % of the link's current bandwidth"
        found.append(Evidence.of(GPU_PCIE_RX_MB_PER_S, carried, note=note, form="explains"))
    return found


RULE = rule(
    __name__,
    "Degraded PCIe link",
    check,
    needs=(STEP_TIME_S, GPU_PCIE_WIDTH),
    thresholds={"missing": Threshold(0.25, "of the bandwidth: one generation or half of the lanes less is a half")},
    triage_checks=("gpu.{gpu}.pcie_link_gb_per_s", "gpu.{gpu}.h2d_pinned_gb_per_s"),
)
