"""GPU clocks limited by a setting.

What it does: finds GPUs that run below their highest clock because their application clocks are set or locked.

Fires when: the setting limits the clock in ≥ 50 % of the readings under load, ≥ 5 % below the board's highest clock.

Why it is slow: the driver never goes above clocks that a user or an administrator set (`nvidia-smi -ac`, `-lgc`), however
cool the GPU is. They stay set until they are reset or the machine is restarted, also for whoever uses it next.

Evidence: NVML's clock event reason "applications clocks setting" in the once-a-second readings under load; the SM clock
under load, compared with the board's highest and with the job's other GPUs of the same model.

Fix: reset both settings, `nvidia-smi -rgc` and `-rac` (needs root); on a rented machine ask the provider, or replace the instance.

Estimate: compute of the ranks on this GPU at the clock of its peers without such a setting. Without such peers the
board's highest clock is an upper bound and no gain is certain: at full load the power limit may hold it lower.

False alarms: clocks locked on purpose, for measurements that can be repeated or to save energy. A setting at the highest
clock costs nothing and stays silent.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_CLOCK_MHZ, GPU_CLOCK_SET_SHARE
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

_GAIN_SHARE_MIN = 0.25  # of the gain: a faster GPU may then reach its power limit
_RESET = "nvidia-smi -i {0} -rgc && nvidia-smi -i {0} -rac"


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    used = a.gpu_view.used
    limited = [gpu for gpu in used if (of_gpu(a, GPU_CLOCK_SET_SHARE, gpu) or 0.0) >= t["set"]]
    held = [gpu for gpu in limited if round(_below_highest(a, gpu), 9) >= t["clock"]]
    if not held:
        unknown = any(clock_ratio(a, gpu, ()) is None for gpu in limited)
        return clear_if_measured(
            RULE.id, *unmeasured(a, used, GPU_CLOCK_SET_SHARE), *((GPU_CLOCK_MHZ,) if unknown else ())
        )
    sound = [gpu for gpu in used if gpu not in limited]
    saving = saving_at_peers_clock(a, held, sound, _GAIN_SHARE_MIN, sure=True)
    lost = sum(saving.seconds_per_step) / 2
    return Finding(
        rule=RULE.id,
        title=f"Clock setting limits {listed(held)}",
        severity=severity(lost / a.value(STEP_TIME_S)) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, held), gpus=tuple(gpu.index for gpu in held)),
        evidence=tuple(e for gpu in held[:3] for e in _evidence(a, gpu, sound, t)),
        fixes=(
            Fix(
                f"reset the clock settings of {placed(held)}, or ask the administrator to",
                on_each_host(held, _RESET, note="needs root"),
                None,
                "outside the code",
                gpus=tuple(gpu.index for gpu in held),
            ),
        ),
        saving=saving if lost > 0 else None,
    )


def _below_highest(a: Analysis, gpu: Gpu) -> float:
    """The share by which its clock is below the board's highest."""
    found = clock_ratio(a, gpu, ())
    return 0.0 if found is None else 1.0 - found[0]


def _evidence(a: Analysis, gpu: Gpu, sound: list[Gpu], t: Thresholds) -> list[Evidence]:
    share, clock = of_gpu(a, GPU_CLOCK_SET_SHARE, gpu) or 0.0, of_gpu(a, GPU_CLOCK_MHZ, gpu)
    note = f"{named(gpu)}: the clock setting limits its clock in {100 * share:.0f} % of the readings under load"
    found = [Evidence.of(GPU_CLOCK_SET_SHARE, share, t["set"], note, gpu=gpu.index)]
    highest = gpu.sm_clock_max_mhz or 0.0
    note = f"under load, its highest clock {highest:.0f} MHz"
    against = clock_ratio(a, gpu, sound)
    if against is not None and against[2]:
        note += f", its peers {against[1]:.0f} MHz"
    return [*found, Evidence.of(GPU_CLOCK_MHZ, clock, (1 - t["clock"]) * highest, note)]


RULE = rule(
    __name__,
    "GPU clocks limited by a setting",
    check,
    needs=(STEP_TIME_S, GPU_CLOCK_SET_SHARE),
    thresholds={
        "set": Threshold(0.50, "of the readings under load: a setting limits all of them or, if heat does too, most"),
        "clock": Threshold(0.05, "below the board's highest: less is what the power limit takes from sound GPUs"),
    },
    triage_checks=("gpu.{gpu}.clock_set_share", "gpu.{gpu}.sustained_share", "gpu.{gpu}.sustained_clock_mhz"),
)
