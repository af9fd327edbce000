"""Power capping.

What it does: finds GPUs that spend much of the time at their power limit and therefore run at lower clocks than the
job's other GPUs of the same model, and GPUs whose limit was lowered.

Fires when: the cap holds for ≥ 10 % of the time and clocks are ≥ 5 % below the peers', or the limit was lowered.

Why it is slow: at the limit the driver lowers the clocks until the power fits. All ranks wait for the slowest GPU.

Evidence: NVML's cumulative time of the software power cap as a share of the time; the SM clock under load, compared
with the peers; the limit in force, compared with the board's default.

Fix: raise the limit (`nvidia-smi -i N -pl WATTS`, needs root) or ask for another instance. A board that needs more
power than its peers for the same clock may be a weak chip or poorly cooled.

Estimate: compute of its ranks at the clock of the peers; if all limits are lowered alike, at most the board's highest
clock.

False alarms: full load at the full limit is normal: as long as its peers are no faster, the rule stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ, GPU_POWER_CAPPED_SHARE, GPU_POWER_LIMIT_W
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    clock_ratio,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    saving_at_peers_clock,
    unmeasured,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN_SHARE_MIN = 0.25  # of the gain


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    used = a.gpu_view.used
    capped = [gpu for gpu in used if (of_gpu(a, GPU_POWER_CAPPED_SHARE, gpu) or 0.0) >= t["capped"]]
    slower = [gpu for gpu in capped if _slower(a, gpu, used) >= t["clock"]]
    lowered = [gpu for gpu in capped if _lowered(a, gpu) >= t["limit"]]
    held = slower or lowered
    if not held:
        # these values do not matter for a GPU that never reaches its limit
        of_capped = unmeasured(a, capped, GPU_CLOCK_MHZ, GPU_POWER_LIMIT_W)
        return clear_if_measured(RULE.id, *unmeasured(a, used, GPU_POWER_CAPPED_SHARE), *of_capped)
    sound = [gpu for gpu in used if gpu not in held]
    saving = saving_at_peers_clock(a, held, sound, _GAIN_SHARE_MIN, sure=bool(slower))
    lost = sum(saving.seconds_per_step) / 2
    return Finding(
        rule=RULE.id,
        title=f"Power cap limits {listed(held)}" + _which_were_lowered(held, lowered),
        severity=severity(lost / a.value(STEP_TIME_S)) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, held), gpus=tuple(gpu.index for gpu in held)),
        evidence=tuple(e for gpu in held[:3] for e in _evidence(a, gpu, used, t)),
        fixes=_fixes(held, lowered),
        saving=saving if lost > 0 else None,
    )


def _slower(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...]) -> float:
    """The share by which its clock is below the peers'."""
    found = clock_ratio(a, gpu, [other for other in used if other is not gpu])
    return 1.0 - found[0] if found is not None and found[2] else 0.0


def _lowered(a: Analysis, gpu: Gpu) -> float:
    limit = of_gpu(a, GPU_POWER_LIMIT_W, gpu)
    return 1.0 - limit / gpu.power_limit_default_w if limit is not None and gpu.power_limit_default_w else 0.0


def _evidence(a: Analysis, gpu: Gpu, used: tuple[Gpu, ...], t: Thresholds) -> list[Evidence]:
    share = of_gpu(a, GPU_POWER_CAPPED_SHARE, gpu) or 0.0
    note = f"{named(gpu)} at its power limit for {100 * share:.0f} % of the time"
    found = [Evidence.of(GPU_POWER_CAPPED_SHARE, share, t["capped"], note, gpu=gpu.index)]
    against = clock_ratio(a, gpu, [other for other in used if other is not gpu])
    clock, limit = of_gpu(a, GPU_CLOCK_MHZ, gpu), of_gpu(a, GPU_POWER_LIMIT_W, gpu)
    if clock is not None and against is not None and against[2]:
        note = f"under load, its peers {against[1]:.0f} MHz"
        found.append(Evidence.of(GPU_CLOCK_MHZ, clock, (1 - t["clock"]) * against[1], note))
    if limit is not None and gpu.power_limit_default_w:
        note = f"in force, by default {gpu.power_limit_default_w:.0f} W"
        found.append(Evidence.of(GPU_POWER_LIMIT_W, limit, note=note))
    return found


def _which_were_lowered(held: list[Gpu], lowered: list[Gpu]) -> str:
    some = [gpu for gpu in held if gpu in lowered]
    if len(some) == len(held):
        return ": it was lowered"
    return f": that of {listed(some)} was lowered" if some else ""


def _fixes(held: list[Gpu], lowered: list[Gpu]) -> tuple[Fix, ...]:
    """Raise lowered limits to the board's default; GPUs that throttle at the default limit need cooling."""
    fixes = []
    for watts in dict.fromkeys(gpu.power_limit_default_w or 0.0 for gpu in held if gpu in lowered):
        some = [gpu for gpu in held if gpu in lowered and gpu.power_limit_default_w == watts]
        change = on_each_host(some, f"nvidia-smi -i {{}} -pl {watts:.0f}")
        title = f"raise the power limit of {placed(some)} to {watts:.0f} W"
        fixes.append(Fix(title, change, None, "outside the code", gpus=tuple(gpu.index for gpu in some)))
    if rest := [gpu for gpu in held if gpu not in lowered]:
        cool = f"check the cooling of {placed(rest)}, or request another instance"
        fixes.append(Fix(cool, "", None, "outside the code", gpus=tuple(gpu.index for gpu in rest)))
    return tuple(fixes)


RULE = rule(
    __name__,
    "Power capping",
    check,
    needs=(STEP_TIME_S, GPU_POWER_CAPPED_SHARE),
    thresholds={
        "capped": Threshold(0.10, "of the time: below it the GPU reaches the limit only now and then"),
        "clock": Threshold(0.05, "below the peers: chips of one kind differ by a few percent at the same power"),
        "limit": Threshold(0.05, "below the board's own limit: a lowered one, not a rounded one"),
    },
)
