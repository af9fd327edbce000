"""A power cap slows it more than its peers.

What it does: finds GPUs that spend much of the time at their power limit and run at lower clocks for it than the job's other GPUs of the
model, and GPUs whose limit somebody has lowered.

Why it is slow: at the limit the driver lowers the clocks until the power fits. All ranks wait for the slowest GPU.

Evidence: NVML's cumulative time of the software power cap as a share of the time; the SM clock under load beside that of the peers; the
limit in force beside the board's own.

Fix: raise the limit (`nvidia-smi -i N -pl WATTS`, needs root) or ask for another instance. A board that needs more power than its
peers for the same clock has a bad day or a bad cooler.

Estimate: compute of its ranks at the clock of the peers; where all limits are lowered alike, at most the board's highest clock.

False alarms: full load at the full limit is what a GPU is for: as long as its peers are as fast, nothing is said.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_seen,
    clock_ratio,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    saving_at_peers_clock,
    unseen,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LEAST = 0.25  # of the gain


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    used = a.gpu_view.used
    capped = [gpu for gpu in used if (of_gpu(a, "gpu.power_capped_share", gpu) or 0.0) >= t["capped"]]
    slower = [gpu for gpu in capped if _slower(a, gpu, used) >= t["clock"]]
    lowered = [gpu for gpu in capped if _lowered(a, gpu) >= t["limit"]]
    held = slower or lowered
    if not held:
        # a GPU that never meets its limit is not asked for them
        of_capped = unseen(a, capped, "gpu.clock_mhz", "gpu.power_limit_w")
        return clear_if_seen(RULE.id, *unseen(a, used, "gpu.power_capped_share"), *of_capped)
    sound = [gpu for gpu in used if gpu not in held]
    saving = saving_at_peers_clock(a, held, sound, _LEAST, sure=bool(slower))
    lost = sum(saving.seconds_per_step) / 2
    return Finding(
        rule=RULE.id,
        title=f"The power limit slows {listed(held)} down" + _which_were_lowered(held, lowered),
        severity=severity(lost / a.value("step.time_s")) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, held), gpus=tuple(gpu.index for gpu in held)),
        evidence=tuple(e for gpu in held[:3] for e in _evidence(a, gpu, used, t)),
        fixes=_fixes(held, lowered),
        saving=saving if lost > 0 else None,
    )


def _slower(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...]) -> float:
    """By which share its clock is below the peers'."""
    found = clock_ratio(a, gpu, [other for other in used if other is not gpu])
    return 1.0 - found[0] if found is not None and found[2] else 0.0


def _lowered(a: Analysis, gpu: Gpu) -> float:
    limit = of_gpu(a, "gpu.power_limit_w", gpu)
    return 1.0 - limit / gpu.power_limit_default_w if limit is not None and gpu.power_limit_default_w else 0.0


def _evidence(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...], t: Thresholds) -> list[Evidence]:
    share = of_gpu(a, "gpu.power_capped_share", gpu) or 0.0
    note = f"{named(gpu)} at its power limit for {100 * share:.0f} % of the time"
    found = [Evidence("gpu.power_capped_share", share, "", t["capped"], note)]
    against = clock_ratio(a, gpu, [other for other in used if other is not gpu])
    clock, limit = of_gpu(a, "gpu.clock_mhz", gpu), of_gpu(a, "gpu.power_limit_w", gpu)
    if clock is not None and against is not None and against[2]:
        note = f"{clock:.0f} MHz under load, its peers {against[1]:.0f} MHz"
        found.append(Evidence("gpu.clock_mhz", clock, "MHz", (1 - t["clock"]) * against[1], note))
    if limit is not None and gpu.power_limit_default_w:
        note = f"in force {limit:.0f} W, by default {gpu.power_limit_default_w:.0f} W"
        found.append(Evidence("gpu.power_limit_w", limit, "W", None, note))
    return found


def _which_were_lowered(held: list[Gpu], lowered: list[Gpu]) -> str:
    some = [gpu for gpu in held if gpu in lowered]
    if len(some) == len(held):
        return ": it was lowered"
    return f": that of {listed(some)} was lowered" if some else ""


def _fixes(held: list[Gpu], lowered: list[Gpu]) -> tuple[Fix, ...]:
    """Of those that were lowered to the limit that each board has; the others meet the one that they should have."""
    fixes = []
    for watts in dict.fromkeys(gpu.power_limit_default_w or 0.0 for gpu in held if gpu in lowered):
        some = [gpu for gpu in held if gpu in lowered and gpu.power_limit_default_w == watts]
        change = on_each_host(some, f"nvidia-smi -i {{}} -pl {watts:.0f}")
        fixes.append(Fix(f"raise the power limit of {placed(some)} to {watts:.0f} W", change, None, "outside the code"))
    if rest := [gpu for gpu in held if gpu not in lowered]:
        cool = f"look at the cooling of {placed(rest)}, or ask for another instance"
        fixes.append(Fix(cool, "", None, "outside the code"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "a power cap slows it more than its peers",
    check,
    needs=("step.time_s", "gpu.power_capped_share"),
    explains=("CMP007", "COM002"),
    thresholds={
        "capped": Threshold(0.10, "of the time: below it the limit is touched, not met"),
        "clock": Threshold(0.05, "below the peers: chips of one kind differ by a few percent at the same power"),
        "limit": Threshold(0.05, "below the board's own limit: a lowered one, not a rounded one"),
    },
)
