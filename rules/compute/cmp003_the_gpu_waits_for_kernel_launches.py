"""The GPU waits for kernel launches.

What it does: finds steps in which the GPU is done with each kernel before the host has launched the next.

Why it is slow: launching a kernel from Python takes 5 to 20 microseconds. Where kernels are shorter than that, the GPU stands idle between
them, and the host sets the pace: a faster GPU would not help.

Evidence: CUDA events at the marks of a step: phases at whose end the GPU was not behind the host, so that nothing was queued. How much of
this time it idled is told by the time without any kernel (NVML), or by a deep window; without either it is not measured.

Fix: a larger batch, `torch.compile`, CUDA graphs, a fused optimizer: fewer and longer kernels.

Estimate: half of the idle time to all of it.

False alarms: waiting for input and for copies is not counted, nor are phases in which the host waits for the GPU. A host that is held back
(a CPU quota, neighbours, too many threads) launches slowly: what its thread waits for a core is taken off, and that is the cause then.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.rules.analysis_reading import COMPUTE, common, model_of
from rn50_advisor.rules.compute.compute_cost import HELD_HOST, facts_of, fused_form, on_gpu_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_ROOM = 0.45  # of the memory, by tensors: twice the batch fits


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, delays = a.value("step.time_s"), a.by_rank("step.run_delay_s")
    paced = {rank: max(0.0, s - delays.get(rank, 0.0)) for rank, s in a.by_rank("gpu.host_paced_s").items()}
    if common(paced) < t["idle"] * step:
        return Clear(RULE.id)
    told = {rank: _idle_s(a, rank, s) for rank, s in paced.items()}
    idle = {rank: seconds for rank, seconds in told.items() if seconds is not None}
    if len(idle) < len(told):
        return NotMeasured(RULE.id, ("gpu.util_share",))
    best = _if_queued(a, idle)
    worst = _if_queued(a, {rank: seconds / 2 for rank, seconds in idle.items()})
    expected = (best + worst) / 2
    level = severity((step - expected) / step)
    if common(idle) < t["idle"] * step or level is None:
        return Clear(RULE.id)
    rank = next(rank for rank in paced if paced[rank] >= common(paced))
    deep = a.get("kernel.idle_launch_share", rank) is not None
    return Finding(
        rule=RULE.id,
        title="The GPU waits for kernel launches",
        severity=level,
        confidence=confidence(a, cap=0.95 if deep else 0.8),
        seconds_per_step=step - expected,
        evidence=(
            Evidence(
                "gpu.host_paced_s",
                common(paced),
                "s",
                t["idle"] * step,
                f"{100 * common(paced) / step:.0f} % of a {1000 * step:.1f} ms step went at the host's pace, nothing was queued",
            ),
            Evidence(
                "idle for launches",
                common(idle),
                "s",
                t["idle"] * step,
                "the next kernel came too late, in the deep window"
                if deep
                else "no kernel was resident, and neither input nor the time between steps explains it",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model_of(a).saving(best, worst, "the GPU no longer idles between kernels, or half as long"),
        causes=HELD_HOST,
    )


def _idle_s(a: Analysis, rank: int, paced_s: float) -> float | None:
    """Seconds a step that the GPU idled for launches; None where nobody saw when it had a kernel."""
    step = a.value("step.time_s")
    told = a.get("kernel.idle_launch_share", rank)
    if told is not None:
        # what the loop does between steps delays the next launch, too
        between = (a.get("gpu.idle_gap_s", rank) or 0.0) - (a.get("kernel.idle_sync_share", rank) or 0.0) * step
        return max(0.0, min(paced_s, told * step - max(0.0, between)))
    resident = on_gpu_of(a, rank, "gpu.util_share")
    if resident is None:
        return None
    elsewhere = sum(a.get(f"gpu.idle_{name}_s", rank) or 0.0 for name in ("input", "gap"))
    return max(0.0, min(paced_s, (1.0 - resident) * step - elsewhere))


def _if_queued(a: Analysis, spared: dict[int, float]) -> float:
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, seconds in spared.items():
        whole = sum(model.own[rank][phase] for phase in COMPUTE)
        keep = max(0.0, 1.0 - seconds / max(whole, 1e-12))
        changes |= {(rank, phase): model.own[rank][phase] * keep for phase in COMPUTE}
    return model.step_if(changes)


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    told = facts_of(a, rank)
    fixes = []
    peak = a.get("gpu.peak_share", rank)
    if peak is not None and peak <= _ROOM:
        fixes.append(Fix("a larger batch: its kernels are longer, and as many", "", None, "small change"))
    if not told.get("compiled_frames"):
        compiled = 'model = torch.compile(model, mode="reduce-overhead")'
        fixes.append(Fix("compile the model: fewer kernels, replayed as a CUDA graph", compiled, None, "one line"))
    else:
        fixes.append(Fix("replay the step as a CUDA graph", 'mode="reduce-overhead"', None, "one line"))
    if name := fused_form(a, rank):
        change = f"{name}(..., fused=True)"
        fixes.append(Fix("a fused optimizer: one kernel instead of many", change, None, "one line"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "the GPU waits for kernel launches",
    check,
    needs=("step.time_s", "gpu.host_paced_s"),
    explains=("CMP008",),
    thresholds={
        "idle": Threshold(0.10, "of the step: below it the first kernels of each phase explain it"),
    },
)
