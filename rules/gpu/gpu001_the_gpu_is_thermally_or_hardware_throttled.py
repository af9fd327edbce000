"""The GPU is thermally or hardware throttled.

What it does: finds GPUs whose clocks were held down by their temperature or by a power brake while the job trained.

Why it is slow: the driver lowers the clocks step by step; where that is not enough the board halves them, or worse. In a job of several
ranks all the others wait for the one on the hot GPU.

Evidence: NVML's cumulative times of thermal slowdown by software and by hardware and of the power brake, as a share of the time; the
largest of them, because they overlap; of GPUs that keep no such times, the share of the looks once a second at which the driver gave
one of these reasons, three at least. The SM clock under load beside that of the job's other GPUs of the model.

Fix: airflow, fans, heat sinks, the temperature of the room; for the power brake the power supply. On a rented machine: hand it back.

Estimate: compute of the ranks on this GPU at the clock of its sound peers. Without peers the board's highest clock is the most that
could be reached, and nothing is sure.

False alarms: reasons that flash up while clocks change are no time; the counters hardly move. A GPU at its power limit alone is GPU002.
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
    placed,
    ranks_on,
    saving_at_peers_clock,
    unseen,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_KINDS = {
    "gpu.hw_thermal_share": "halved by the board for the temperature",
    "gpu.sw_thermal_share": "lowered by the driver for the temperature",
    "gpu.power_brake_share": "halved by the power brake",
}
_LEAST = 0.25  # of the gain: a cooler GPU may meet its power limit instead


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    held = [gpu for gpu in a.gpu_view.used if (of_gpu(a, "gpu.throttled_share", gpu) or 0.0) >= t["share"]]
    if not held:
        return clear_if_seen(RULE.id, *unseen(a, a.gpu_view.used, "gpu.throttled_share"))
    sound = [gpu for gpu in a.gpu_view.used if gpu not in held]
    saving = saving_at_peers_clock(a, held, sound, _LEAST, sure=True)
    lost = sum(saving.seconds_per_step) / 2
    worst = max(held, key=lambda gpu: of_gpu(a, "gpu.throttled_share", gpu) or 0.0)
    return Finding(
        rule=RULE.id,
        title=f"{listed(held)} throttled: {_kind(a, worst)}",
        severity=severity(lost / a.value("step.time_s")) or "low",
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
    return f"clocks {_KINDS[most]}" if shares[most] > 0 else "clocks held down by heat or a power brake"


def _evidence(a: Analysis, gpu: Gpu, sound: list[Gpu], t: Thresholds) -> list[Evidence]:
    share = of_gpu(a, "gpu.throttled_share", gpu) or 0.0
    found = [
        Evidence(
            "gpu.throttled_share",
            share,
            "",
            t["share"],
            f"{named(gpu)} held down for {100 * share:.0f} % of the time: {_kind(a, gpu)}",
        )
    ]
    clock, against, heat = of_gpu(a, "gpu.clock_mhz", gpu), clock_ratio(a, gpu, sound), of_gpu(a, "gpu.temp_c", gpu)
    if clock is not None and against is not None:
        _, mhz, by_peers = against
        whose = "its peers" if by_peers else "its highest clock"
        note = f"{clock:.0f} MHz under load, {whose} {mhz:.0f} MHz" + (f", {heat:.0f} °C" if heat is not None else "")
        found.append(Evidence("gpu.clock_mhz", clock, "MHz", None, note))
    return found


def _fix(a: Analysis, worst: Gpu, held: list[Gpu]) -> Fix:
    brake = of_gpu(a, "gpu.power_brake_share", worst) or 0.0
    if brake > 0 and brake == of_gpu(a, "gpu.throttled_share", worst):
        return Fix(f"check the power supply of {placed(held)}, or hand the machine back", "", None, "outside the code")
    return Fix(f"cool {placed(held)} (airflow, fans), or hand the machine back", "", None, "outside the code")


RULE = rule(
    __name__,
    "the GPU is thermally or hardware throttled",
    check,
    needs=("step.time_s", "gpu.throttled_share"),
    explains=("CMP007", "COM002"),
    thresholds={"share": Threshold(0.02, "of the time: reasons that flash up at a change of clocks stay far below it")},
)
