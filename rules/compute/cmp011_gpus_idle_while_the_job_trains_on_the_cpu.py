"""Training on the CPU while GPUs are idle.

What it does: finds jobs in which no rank trains on a GPU although the host has idle ones.

Fires when: no rank trains on a GPU, the driver reports idle ones, and a step computes ≥ 20 ms.

Why it is slow: the model was never moved to the GPU, or torch cannot use it: a build without CUDA, or a driver that is
too old. Scripts that check `torch.cuda.is_available()` then silently train on the CPU.

Evidence: the device of the model's parameters; the driver's list of GPUs, with their utilisation and memory use while
the job trained; the compute time of a step.

Fix: move model and batches to the GPU. If torch cannot see it, first install a build with CUDA for this driver.

Estimate: none, because nothing was measured on the GPU. Try it: a run with and a run without, and `rn50-advisor
compare`.

False alarms: steps that compute for less than 20 ms may be no faster on a GPU, because its host takes some milliseconds
to launch a step. A user who hides the GPUs (`CUDA_VISIBLE_DEVICES=`) does not want any. GPUs that compute, or whose
memory is in use, belong to other users.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_IDLE_BESIDE
from rn50_advisor.advisor.model.measures.step_measures import STEP_COMPUTE_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import COMPUTE
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_NO_GPUS = ("", "-1", "none", "NoDevFiles")
_WITHOUT_CUDA = ("+cpu", "+rocm", "+xpu")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    idle, computing = a.get(GPU_IDLE_BESIDE), sum(a.budget.critical.get(phase, 0.0) for phase in COMPUTE)
    variables = a.meta.environment.get("variables", {})
    if a.on_gpu or computing < t["compute"] or variables.get("CUDA_VISIBLE_DEVICES") in _NO_GPUS:
        return Clear(RULE.id)
    if not idle:
        unread = idle is None and bool(a.gpu_view.devices)
        return NotMeasured(RULE.id, (GPU_IDLE_BESIDE,)) if unread else Clear(RULE.id)
    names = sorted({gpu.name for gpu in a.gpu_view.devices})
    return Finding(
        rule=RULE.id,
        title=f"CPU training with {counted(int(idle), 'idle GPU')}",
        severity="high",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        urgent=True,
        evidence=(
            Evidence.of(
                GPU_IDLE_BESIDE,
                idle,
                1.0,
                f"{', '.join(names)}: in use for less than a tenth of the time",
                form="explains",
            ),
            Evidence.of(STEP_COMPUTE_S, computing, t["compute"], "of each step is CPU compute", form="continues"),
            *(Evidence("torch", build, "", None, "of the ranks", "explains") for build in _builds(a)),
        ),
        fixes=(_fix(a),),
    )


def _builds(a: Analysis) -> tuple[str, ...]:
    return tuple(sorted({version for facts in a.rank_facts.values() if (version := facts.get("torch"))}))


def _fix(a: Analysis) -> Fix:
    without = next((build for build in _builds(a) if any(part in build for part in _WITHOUT_CUDA)), None)
    if without is not None:
        driver = a.meta.environment.get("driver_cuda")
        newest = f"; this driver supports CUDA {driver}" if driver else ""
        return Fix(f"install torch with CUDA: {without} has none", f"pip install torch{newest}", None, "small change")
    return Fix(
        "move model and batches to the GPU",
        'model.to("cuda") and batch.to("cuda", non_blocking=True); python -c "import torch; print(torch.cuda.is_available())" '
        "shows whether torch can use it",
        None,
        "small change",
    )


RULE = rule(
    __name__,
    "Training on the CPU while GPUs are idle",
    check,
    severities=("high",),
    needs=(STEP_TIME_S,),
    thresholds={
        "compute": Threshold(
            0.02, "s; an estimate, not yet confirmed on a GPU: a host takes some milliseconds to launch a step"
        )
    },
)
