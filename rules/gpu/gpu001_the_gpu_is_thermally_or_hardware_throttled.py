"""Thermal throttling.

What it does: finds GPUs whose clocks were reduced because of their temperature or a power brake while the job trained.

Fires when: clocks are throttled for ≥ 2 % of the time, by the driver's own counters.

Why it is slow: the driver lowers the clocks step by step; if that is not enough, the board halves them, or worse. In a
job with several ranks all the others wait for the one on the hot GPU.

Evidence: NVML's cumulative times of thermal slowdown by software and by hardware and of the power brake, as a share of
the time; the largest of them counts, because they overlap. For GPUs without such counters, the share of the
once-a-second samples in which the driver reported one of these reasons, at least three. The SM clock under load,
compared with the job's other GPUs of the same model.

Fix: airflow, fans, heat sinks, the room temperature; for the power brake the power supply. On a rented machine,
replace the instance.

Estimate: compute of the ranks on this GPU at the clock of its sound peers. Without peers the board's highest clock is
an upper bound, and no gain is certain.

False alarms: reasons that appear briefly while clocks change hardly move the counters. A GPU that is only at its power
limit belongs to GPU002.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_CLOCK_MHZ,
    GPU_HW_THERMAL_SHARE,
    GPU_POWER_BRAKE_SHARE,
    GPU_SW_THERMAL_SHARE,
    GPU_TEMP_C,
    GPU_THROTTLED_SHARE,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    clock_ratio,
    listed,
    named,
    of_gpu,
    placed,
    ranks_on,
    saving_at_peers_clock,
    unmeasured,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_KINDS = {
    GPU_HW_THERMAL_SHARE: "hardware thermal slowdown",
    GPU_SW_THERMAL_SHARE: "software thermal slowdown",
    GPU_POWER_BRAKE_SHARE: "power brake slowdown",
}
_GAIN_SHARE_MIN = 0.25  # of the gain: a cooler GPU may then reach its power limit


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    held = [gpu for gpu in a.gpu_view.used if (of_gpu(a, GPU_THROTTLED_SHARE, gpu) or 0.0) >= t["share"]]
    if not held:
        return clear_if_measured(RULE.id, *unmeasured(a, a.gpu_view.used, GPU_THROTTLED_SHARE))
    sound = [gpu for gpu in a.gpu_view.used if gpu not in held]
    saving = saving_at_peers_clock(a, held, sound, _GAIN_SHARE_MIN, sure=True)
    lost = sum(saving.seconds_per_step) / 2
    worst = max(held, key=lambda gpu: of_gpu(a, GPU_THROTTLED_SHARE, gpu) or 0.0)
    return Finding(
        rule=RULE.id,
        title=f"{listed(held)} throttled: {_kind(a, worst)}",
        severity=severity(lost / a.value(STEP_TIME_S)) or "low",
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, held), gpus=tuple(gpu.index for gpu in held)),
        evidence=tuple(e for gpu in held[:3] for e in _evidence(a, gpu, sound, t)),
        fixes=(_fix(a, worst, held),),
        saving=saving if lost > 0 else None,
    )


def _kind(a: Analysis, gpu: Gpu) -> str:
    shares = {name: of_gpu(a, name, gpu) or 0.0 for name in _KINDS}
    most = max(shares, key=lambda name: shares[name])
    return _KINDS[most] if shares[most] > 0 else "thermal or power brake slowdown"


def _evidence(a: Analysis, gpu: Gpu, sound: list[Gpu], t: Thresholds) -> list[Evidence]:
    share = of_gpu(a, GPU_THROTTLED_SHARE, gpu) or 0.0
    found = [
        Evidence.of(
            GPU_THROTTLED_SHARE,
            share,
            t["share"],
            f"{named(gpu)} throttled for {100 * share:.0f} % of the time: {_kind(a, gpu)}",
            gpu=gpu.index,
        )
    ]
    clock, against, heat = of_gpu(a, GPU_CLOCK_MHZ, gpu), clock_ratio(a, gpu, sound), of_gpu(a, GPU_TEMP_C, gpu)
    if clock is not None and against is not None:
        _, mhz, by_peers = against
        whose = "its peers" if by_peers else "its highest clock"
        note = f"under load, {whose} {mhz:.0f} MHz" + (f", {heat:.0f} °C" if heat is not None else "")
        found.append(Evidence.of(GPU_CLOCK_MHZ, clock, note=note))
    return found


def _fix(a: Analysis, worst: Gpu, held: list[Gpu]) -> Fix:
    brake = of_gpu(a, GPU_POWER_BRAKE_SHARE, worst) or 0.0
    if brake > 0 and brake == of_gpu(a, GPU_THROTTLED_SHARE, worst):
        return Fix(f"check the power supply of {placed(held)}, or replace the node", "", None, "outside the code")
    return Fix(f"cool {placed(held)} (airflow, fans), or replace the node", "", None, "outside the code")


RULE = rule(
    __name__,
    "Thermal throttling",
    check,
    needs=(STEP_TIME_S, GPU_THROTTLED_SHARE),
    thresholds={
        "share": Threshold(0.02, "of the time: reasons that appear briefly when clocks change stay far below it")
    },
    triage_checks=("gpu.{gpu}.throttled_share", "gpu.{gpu}.sustained_share", "gpu.{gpu}.sustained_clock_mhz"),
)
