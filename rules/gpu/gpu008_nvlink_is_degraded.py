"""NVLink is degraded.

What it does: finds GPUs of the job with NVLinks that are down while others of theirs and those of their peers are up, or that went down
in the run, or with links that lose packets and recover again and again.

Why it is slow: all-reduce goes around a ring or through a switch at the pace of the weakest GPU. Without any link the way leads over
PCIe, ten times slower.

Evidence: links up, against all that a board on an NVLink switch has, or else against the best of its peers on the host and its own best
in the run, and where all are down against all that a board in SXM form has; replays, recoveries and damaged packets in the run; which GPUs
it reaches over PCIe for it while its peers have NVLink between them; what the links that are left carry.

Fix: reset the GPUs and the fabric manager; hand the machine back.

Estimate: of the exposed time on the wire the share of links that are missing, between half of it and all.

False alarms: boards without bridge have all their links down; so has the only GPU of a virtual machine. Of a board that takes a bridge and
has no link up beside others that have some nobody knows whether it has one: it is not judged. Pairs that never had a link between them
are how the machine was built, and COM008's where better ones stand idle. Damaged packets are repeated by the link; below a hundred a second
they mean nothing (DCGM's own limit).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import clear_if_seen, listed, named, of_gpu, placed, unseen
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_OFTEN, _OFTEN_PER_S = 3.0, 1 / 60  # recoveries: three, and once a minute, are more than a hiccup
_OVER_PCIE = frozenset({"PSB", "PIX", "PXB", "PHB", "NODE", "SYS"})


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    used = a.gpu_view.used
    down = [gpu for gpu in used if _missing(a, gpu) >= t["links"]]
    noisy = [gpu for gpu in used if gpu not in down and _noisy(a, gpu, t)]
    if not down and not noisy:
        seen = [gpu for gpu in used if of_gpu(a, "gpu.nvlinks_active", gpu) is not None]
        linked = [gpu for gpu in seen if of_gpu(a, "gpu.nvlinks_active", gpu)]
        counted = unseen(a, linked, "gpu.nvlink_recoveries", "gpu.nvlink_crc_per_s")
        return clear_if_seen(
            RULE.id, *unseen(a, used, "gpu.nvlinks_active"), *unseen(a, seen, "gpu.nvlinks_due"), *counted
        )
    gpus = sorted([*down, *noisy], key=lambda gpu: gpu.index)
    saving = _saving(a, down)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    many = max(_OFTEN, _OFTEN_PER_S * a.duration_s)
    often = any((of_gpu(a, "gpu.nvlink_recoveries", gpu) or 0.0) >= many for gpu in noisy)
    return Finding(
        rule=RULE.id,
        title=f"NVLinks of {listed(down)} are down" if down else f"NVLinks of {listed(noisy)} lose packets",
        # nothing of a job on one GPU goes over them
        severity=severity(lost / a.value("step.time_s")) or ("medium" if len(used) > 1 and (down or often) else "low"),
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(gpus=tuple(gpu.index for gpu in gpus)),
        evidence=tuple(e for gpu in gpus[:3] for e in _evidence(a, gpu, used, t)),
        fixes=(
            Fix(f"reset {placed(gpus)} and the fabric manager, or hand the machine back", "", None, "outside the code"),
        ),
        saving=saving if lost > 0 else None,
    )


def _missing(a: Analysis, gpu: Gpu) -> float:
    """Links that should be up and are not; none of a GPU of which either is not known."""
    active, due = of_gpu(a, "gpu.nvlinks_active", gpu), of_gpu(a, "gpu.nvlinks_due", gpu)
    return 0.0 if active is None or due is None else due - active


def _noisy(a: Analysis, gpu: Gpu, t: Thresholds) -> bool:
    recovered, damaged = of_gpu(a, "gpu.nvlink_recoveries", gpu), of_gpu(a, "gpu.nvlink_crc_per_s", gpu)
    return (recovered or 0.0) >= t["recoveries"] or (damaged or 0.0) >= t["damaged"]


def _saving(a: Analysis, down: list[Gpu]) -> Saving | None:
    wire, step = a.get("comm.wire_s"), a.value("step.time_s")
    if not down or not wire:
        return None
    share = max(_missing(a, gpu) / max(of_gpu(a, "gpu.nvlinks_due", gpu) or 0.0, 1.0) for gpu in down)
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=wire * (1.0 - part * share)) for part in (1.0, 0.5))
    return model.saving(best, worst, f"all links of {listed(down)} up") if best < step else None


def _evidence(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...], t: Thresholds) -> list[Evidence]:
    active, should = of_gpu(a, "gpu.nvlinks_active", gpu) or 0.0, of_gpu(a, "gpu.nvlinks_due", gpu) or 0.0
    found = []
    if _missing(a, gpu) >= t["links"]:
        note = f"{named(gpu)}: {active:.0f} of {should:.0f} links up"
        found.append(Evidence("gpu.nvlinks_active", active, "links", should, note))
        found += _around(a, gpu, used)
        carried = of_gpu(a, "gpu.nvlink_mb_per_s", gpu)
        if carried is not None and active > 0:
            found.append(Evidence("gpu.nvlink_mb_per_s", carried, "MB/s", None, "received over those that are up"))
    recovered, damaged = of_gpu(a, "gpu.nvlink_recoveries", gpu), of_gpu(a, "gpu.nvlink_crc_per_s", gpu)
    if recovered is not None and recovered >= t["recoveries"]:
        note = f"{named(gpu)}: replays and recoveries in the run"
        found.append(Evidence("gpu.nvlink_recoveries", recovered, "events", t["recoveries"], note))
    if damaged is not None and damaged >= t["damaged"]:
        note = f"{named(gpu)}: damaged packets a second"
        found.append(Evidence("gpu.nvlink_crc_per_s", damaged, "errors/s", t["damaged"], note))
    return found


def _around(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...]) -> tuple[Evidence, ...]:
    """The GPUs that it reaches over PCIe though others of its kind have NVLink between them."""
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
    ways = ", ".join(sorted({path.path for path in own}))
    return (Evidence("path", ways, "", None, f"{named(gpu)} reaches {far} over PCIe, its peers have {linked[-1]}"),)


RULE = rule(
    __name__,
    "NVLink is degraded",
    check,
    needs=("step.time_s", "gpu.nvlinks_active"),
    explains=("COM001",),
    thresholds={
        "links": Threshold(1, "of the links that should be up: a sound board has them all"),
        "recoveries": Threshold(1, "event: a sound link needs none (DCGM fails a GPU from the first on)"),
        "damaged": Threshold(100, "packets a second: DCGM's limit; the link repeats what is damaged"),
    },
)
