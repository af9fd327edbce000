"""GPUs idle while the job trains on the CPU.

What it does: finds jobs none of whose ranks trains on a GPU, on a host that has some with nothing to do.

Why it is slow: the model was never moved to the GPU, or torch cannot use it: a build without CUDA, a driver that is too old. Scripts that
ask `torch.cuda.is_available()` then train on the CPU without a word.

Evidence: where the recorder saw the model's parameters; the driver's list of GPUs, their utilisation and the memory in use on them while
the job trained; how long a step computes.

Fix: move model and batches to the GPU, or first let torch see it: a build with CUDA for this driver.

Estimate: none, for nothing was measured there. Try it: a run with and a run without, and `rn50-advisor compare`.

False alarms: steps that compute for less than 20 ms may be no faster on a GPU, whose host takes some milliseconds to launch a step. Whoever
hides the GPUs (`CUDA_VISIBLE_DEVICES=`) wants none. GPUs that compute or whose memory is in use are somebody else's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import COMPUTE
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_HIDDEN = ("", "-1", "none", "NoDevFiles")
_WITHOUT_CUDA = ("+cpu", "+rocm", "+xpu")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    idle, computing = a.get("gpu.idle_beside"), sum(a.budget.critical.get(phase, 0.0) for phase in COMPUTE)
    variables: Mapping[str, str] = a.meta.environment.get("variables") or {}
    if a.on_gpu or computing < t["compute"] or variables.get("CUDA_VISIBLE_DEVICES") in _HIDDEN:
        return Clear(RULE.id)
    if not idle:
        unread = idle is None and bool(a.gpu_view.devices)
        return NotMeasured(RULE.id, ("gpu.idle_beside",)) if unread else Clear(RULE.id)
    names = sorted({gpu.name for gpu in a.gpu_view.devices})
    return Finding(
        rule=RULE.id,
        title=f"The job trains on the CPU while {counted(int(idle), 'GPU')} idle{'s' * (idle == 1)}",
        severity="high",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        urgent=True,
        evidence=(
            Evidence("gpu.idle_beside", idle, "GPUs", 1.0, f"{', '.join(names)}: less than a tenth of the time in use"),
            Evidence("step.compute_s", computing, "s", t["compute"], "of each step computes on the CPU"),
            *(Evidence("torch", told, "", None, "the build that the ranks run") for told in _builds(a)),
        ),
        fixes=(_fix(a),),
    )


def _builds(a: Analysis) -> tuple[str, ...]:
    told: list[Any] = [facts.get("torch") for facts in a.facts.values() if isinstance(facts, dict)]
    return tuple(sorted({version for version in told if isinstance(version, str)}))


def _fix(a: Analysis) -> Fix:
    without = next((build for build in _builds(a) if any(part in build for part in _WITHOUT_CUDA)), None)
    if without is not None:
        driver = a.meta.environment.get("driver_cuda")
        newest = f"; this driver carries CUDA {driver}" if driver else ""
        return Fix(f"install torch with CUDA: {without} has none", f"pip install torch{newest}", None, "small change")
    return Fix(
        "move model and batches to the GPU",
        'model.to("cuda") and batch.to("cuda", non_blocking=True); python -c "import torch; print(torch.cuda.is_available())" '
        "tells whether torch can",
        None,
        "small change",
    )


RULE = rule(
    __name__,
    "GPUs idle while the job trains on the CPU",
    check,
    needs=("step.time_s",),
    thresholds={
        "compute": Threshold(
            0.02, "s; a guess that no GPU has confirmed: a host takes some milliseconds to launch a step"
        )
    },
)
