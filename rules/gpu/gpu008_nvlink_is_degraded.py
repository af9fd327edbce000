"""Degraded NVLink.

What it does: finds GPUs of the job with NVLinks that are down while other links of the GPU and those of its peers are
up, with NVLinks that went down during the run, or with links that repeatedly lose packets and recover.

Fires when: links are down while others are up or were up earlier in the run, or links recover again and again.

Why it is slow: all-reduce runs around a ring or through a switch at the rate of the weakest GPU. Without any link the
traffic goes over PCIe, ten times slower.

Evidence: the number of links up. For a board on an NVLink switch it is compared with all its links, otherwise with the
best of its peers on the host and its own best in the run. If all are down, it is compared with all the links of a board
in SXM form. Replays, recoveries and damaged packets in the run; the GPUs that it therefore reaches over PCIe while its
peers have NVLink between them; the traffic on the remaining links.

Fix: reset the GPUs and the fabric manager; replace the node.

Estimate: the missing share of the links, applied to the exposed transfer time: half of that at worst, all of it at
best.

False alarms: boards without a bridge have all their links down; so does the only GPU of a virtual machine. A board that
can take a bridge and has no link up, next to boards that have some, may or may not have a bridge: it is not judged.
Pairs that never had a link between them follow from how the machine was built, and belong to COM008 if better ones are
idle. The link repeats damaged packets; below a hundred a second they mean nothing (DCGM's own limit).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_NVLINK_CRC_PER_S,
    GPU_NVLINK_MB_PER_S,
    GPU_NVLINK_RECOVERIES,
    GPU_NVLINKS_ACTIVE,
    GPU_NVLINKS_DUE,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_measured, listed, named, of_gpu, placed, unmeasured
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_RECOVERIES_MIN, _RECOVERIES_PER_S_MIN = (
    3.0,
    1 / 60,
)  # recoveries: three in total and one a minute are more than an accident
_OVER_PCIE = frozenset({"PSB", "PIX", "PXB", "PHB", "NODE", "SYS"})


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    used = a.gpu_view.used
    down = [gpu for gpu in used if _missing(a, gpu) >= t["links"]]
    noisy = [gpu for gpu in used if gpu not in down and _noisy(a, gpu, t)]
    if not down and not noisy:
        known = [gpu for gpu in used if of_gpu(a, GPU_NVLINKS_ACTIVE, gpu) is not None]
        linked = [gpu for gpu in known if of_gpu(a, GPU_NVLINKS_ACTIVE, gpu)]
        counted = unmeasured(a, linked, GPU_NVLINK_RECOVERIES, GPU_NVLINK_CRC_PER_S)
        return clear_if_measured(
            RULE.id, *unmeasured(a, used, GPU_NVLINKS_ACTIVE), *unmeasured(a, known, GPU_NVLINKS_DUE), *counted
        )
    gpus = sorted([*down, *noisy], key=lambda gpu: gpu.index)
    saving = _saving(a, down)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    many = max(_RECOVERIES_MIN, _RECOVERIES_PER_S_MIN * a.duration_s)
    often = any((of_gpu(a, GPU_NVLINK_RECOVERIES, gpu) or 0.0) >= many for gpu in noisy)
    return Finding(
        rule=RULE.id,
        title=f"NVLinks down: {listed(down)}" if down else f"NVLink packet errors: {listed(noisy)}",
        # a job on one GPU does not use them
        severity=severity(lost / a.value(STEP_TIME_S)) or ("medium" if len(used) > 1 and (down or often) else "low"),
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(gpus=tuple(gpu.index for gpu in gpus)),
        evidence=tuple(e for gpu in gpus[:3] for e in _evidence(a, gpu, used, t)),
        fixes=(Fix(f"reset {placed(gpus)} and the fabric manager, or replace the node", "", None, "outside the code"),),
        saving=saving if lost > 0 else None,
    )


def _missing(a: Analysis, gpu: Gpu) -> float:
    """Number of links that should be up but are not; 0 if either number is unknown."""
    active, due = of_gpu(a, GPU_NVLINKS_ACTIVE, gpu), of_gpu(a, GPU_NVLINKS_DUE, gpu)
    return 0.0 if active is None or due is None else due - active


def _noisy(a: Analysis, gpu: Gpu, t: Thresholds) -> bool:
    recovered, damaged = of_gpu(a, GPU_NVLINK_RECOVERIES, gpu), of_gpu(a, GPU_NVLINK_CRC_PER_S, gpu)
    return (recovered or 0.0) >= t["recoveries"] or (damaged or 0.0) >= t["damaged"]


def _saving(a: Analysis, down: list[Gpu]) -> Saving | None:
    wire, step = a.get(COMM_WIRE_S), a.value(STEP_TIME_S)
    if not down or not wire:
        return None
    share = max(_missing(a, gpu) / max(of_gpu(a, GPU_NVLINKS_DUE, gpu) or 0.0, 1.0) for gpu in down)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=wire * (1.0 - part * share)) for part in (1.0, 0.5))
    return model.saving(best, worst, f"all links of {listed(down)} up") if best < step else None


def _evidence(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...], t: Thresholds) -> list[Evidence]:
    active, should = of_gpu(a, GPU_NVLINKS_ACTIVE, gpu) or 0.0, of_gpu(a, GPU_NVLINKS_DUE, gpu) or 0.0
    found = []
    if _missing(a, gpu) >= t["links"]:
        note = f"{named(gpu)}: {active:.0f} of {should:.0f} links up"
        found.append(Evidence.of(GPU_NVLINKS_ACTIVE, active, should, note, gpu=gpu.index))
        found += _around(a, gpu, used)
        carried = of_gpu(a, GPU_NVLINK_MB_PER_S, gpu)
        if carried is not None and active > 0:
            found.append(
                Evidence.of(GPU_NVLINK_MB_PER_S, carried, note="received over the active links", form="explains")
            )
    recovered, damaged = of_gpu(a, GPU_NVLINK_RECOVERIES, gpu), of_gpu(a, GPU_NVLINK_CRC_PER_S, gpu)
    if recovered is not None and recovered >= t["recoveries"]:
        note = f"{named(gpu)}: replays and recoveries in the run"
        found.append(Evidence.of(GPU_NVLINK_RECOVERIES, recovered, t["recoveries"], note, gpu=gpu.index))
    if damaged is not None and damaged >= t["damaged"]:
        note = f"{named(gpu)}: damaged packets per second"
        found.append(Evidence.of(GPU_NVLINK_CRC_PER_S, damaged, t["damaged"], note, gpu=gpu.index))
    return found


def _around(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...]) -> tuple[Evidence, ...]:
    """The GPUs that it reaches over PCIe although others of its model have NVLink between them."""
    kind = [other for other in used if other.is_like(gpu)]
    pairs = [
        path
        for n, one in enumerate(kind)
        for other in kind[n + 1 :]
        if (path := a.gpu_view.path(one.index, other.index))
    ]
    own = [path for path in pairs if gpu.index in (path.a, path.b)]
    linked = sorted({path.path for path in pairs if path not in own and path.path.startswith("NV")})
    own = [path for path in own if path.path in _OVER_PCIE]
    if not linked or not own:
        return ()
    far = listed(other for other in kind if other is not gpu and any(other.index in (path.a, path.b) for path in own))
    kinds = ", ".join(sorted({path.path for path in own}))
    note = f"{named(gpu)} reaches {far} over PCIe, its peers have {linked[-1]}"
    return (Evidence("path", kinds, "", None, note, gpu=gpu.index),)


RULE = rule(
    __name__,
    "Degraded NVLink",
    check,
    needs=(STEP_TIME_S, GPU_NVLINKS_ACTIVE),
    thresholds={
        "links": Threshold(1, "of the links that should be up: a sound board has them all"),
        "recoveries": Threshold(1, "event: a sound link has none (DCGM fails a GPU from the first on)"),
        "damaged": Threshold(100, "packets a second: DCGM's limit; the link repeats what is damaged"),
    },
    triage_checks=("gpu.{gpu}.nvlinks_active", "gpu.allreduce_1024_mib_gb_per_s"),
)
