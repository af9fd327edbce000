"""Kernel launch overhead.

What it does: finds steps in which the GPU finishes each kernel before the host has launched the next.

Fires when: the GPU is idle between kernels for ≥ 10 % of the step while the host launches.

Why it is slow: launching a kernel from Python takes 5 to 20 microseconds. If kernels are shorter than that, the GPU
idles between them and the host sets the pace: a faster GPU would not help.

Evidence: CUDA events at the phase boundaries of a step: phases at whose end the GPU was not behind the host, so that
nothing was queued. How long the GPU idled in them comes from a profiler window (`--deep`); without one it is at least
the time without any kernel (NVML), which does not see gaps of microseconds, and at most what launching took the host,
or the time in which no unit was active (GPM).

Fix: fewer and longer kernels: a larger batch, `torch.compile`, CUDA graphs, a fused optimizer.

Estimate: between half of the least idle time and all of the most. Where gaps between kernels are not seen, that is two thirds
of what launching the layers takes: CUDA graphs are reported to make launch-bound training up to 3 times as fast. A loader
that just keeps up with today's launches leaves no gain.

False alarms: waiting for input and for copies is not counted, nor are phases in which the host waits for the GPU. A
host that is held back (a CPU quota, neighbours, too many threads) launches slowly: its thread's wait for a core is
subtracted, and that wait is then the cause. So is the time in which it waits for the GPU elsewhere in the step: without
that wait it would launch ahead (CMP004).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import CallChange, Expression, Invocation, ModelChange
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_HOST_PACED_S,
    GPU_IDLE_GAP_S,
    GPU_IDLE_INPUT_S,
    GPU_PEAK_SHARE,
    GPU_SM_ACTIVE_SHARE,
    GPU_UTIL_SHARE,
)
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_IDLE_LAUNCH_SHARE, KERNEL_IDLE_SYNC_SHARE
from rn50_advisor.advisor.model.measures.pace_measures import SYNC_BLOCKED_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import COMPUTE, LAYERS, common, model_of
from rn50_advisor.rules.compute.compute_cost import (
    KERNELS_SHARE_MIN,
    facts_of,
    fused_form,
    loading_floor_s,
    on_gpu_of,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# CUDA graphs are reported to make launch-bound training up to 3 times as fast (NVIDIA, CUDA Graph Best Practice for PyTorch): kernels then
# took a third of what launching took the host.
_KERNELS_SHARE = 1 / 3
_MEMORY_SHARE_MAX = 0.45  # of the memory, by tensors: twice the batch would fit
_SEEN_SHARE_MIN = 0.25  # of the longest possible idle time: from there on, the driver sees gaps between kernels
_UNSEEN_RATIO = 1.25  # times the idle time that it then sees
_REDUCE_OVERHEAD = CallChange.of("torch.compile", mode="reduce-overhead")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, delays = a.value(STEP_TIME_S), a.by_rank(STEP_RUN_DELAY_S)
    waits = a.by_rank(SYNC_BLOCKED_S)
    away = {rank: delays.get(rank, 0.0) + waits.get(rank, 0.0) for rank in a.by_rank(GPU_HOST_PACED_S)}
    paced = {rank: max(0.0, s - away[rank]) for rank, s in a.by_rank(GPU_HOST_PACED_S).items()}
    if common(paced) < t["idle"] * step:
        return Clear(RULE.id)
    estimates = {rank: _idle_s(a, rank, s) for rank, s in paced.items()}
    idle = {rank: seconds for rank, seconds in estimates.items() if seconds is not None}
    if len(idle) < len(estimates):
        return NotMeasured(RULE.id, (GPU_UTIL_SHARE,))
    best = _if_queued(a, {rank: most for rank, (_, most) in idle.items()}, hopeful=True)
    worst = _if_queued(a, {rank: least / 2 for rank, (least, _) in idle.items()}, hopeful=False)
    expected = (best + worst) / 2
    level = severity((step - expected) / step)
    likely = common({rank: sum(seconds) / 2 for rank, seconds in idle.items()})
    if likely < t["idle"] * step or level is None:
        return Clear(RULE.id)
    rank = next(rank for rank in paced if paced[rank] >= common(paced))
    deep = a.get(KERNEL_IDLE_LAUNCH_SHARE, rank) is not None
    unseen = idle[rank][1] > _UNSEEN_RATIO * idle[rank][0]
    return Finding(
        rule=RULE.id,
        title="Kernel launch overhead: the GPU waits for the host",
        severity=level,
        confidence=confidence(a, cap=0.95 if deep else 0.65 if unseen else 0.8),
        seconds_per_step=step - expected,
        evidence=(
            Evidence.of(
                GPU_HOST_PACED_S,
                common(paced),
                t["idle"] * step,
                f"{100 * common(paced) / step:.0f} % of a {duration(step)} step is host-bound: no kernel was queued",
            ),
            Evidence(
                "idle for launches",
                likely,
                "s",
                t["idle"] * step,
                _seen_by(idle[rank], deep=deep, unseen=unseen),
                form="explains",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model_of(a).saving(best, worst, _basis(unseen=unseen)),
    )


def _idle_s(a: Analysis, rank: int, paced_s: float) -> tuple[float, float] | None:
    """Seconds per step that the GPU idled for launches, at least and at most; None if its kernel activity is unknown.

    The driver calls a GPU busy while any kernel runs in a slice of time, so it may not see gaps of microseconds between kernels. At
    most, kernels of the layers took the GPU a third of what launching took the host, or less of it by the units that it counts as
    active. Where the driver sees much idle time, its slices are short, and little is missing.
    """
    step = a.value(STEP_TIME_S)
    launch_share = a.get(KERNEL_IDLE_LAUNCH_SHARE, rank)
    if launch_share is not None:
        # work of the loop between steps delays the next launch, too
        between = (a.get(GPU_IDLE_GAP_S, rank) or 0.0) - (a.get(KERNEL_IDLE_SYNC_SHARE, rank) or 0.0) * step
        seen = max(0.0, min(paced_s, launch_share * step - max(0.0, between)))
        return seen, seen
    resident = on_gpu_of(a, rank, GPU_UTIL_SHARE)
    if resident is None:
        return None
    elsewhere = sum(a.get(measure, rank) or 0.0 for measure in (GPU_IDLE_INPUT_S, GPU_IDLE_GAP_S))
    least = max(0.0, min(paced_s, (1.0 - resident) * step - elsewhere))
    active = on_gpu_of(a, rank, GPU_SM_ACTIVE_SHARE)
    # where ranks meet amid their passes, the GPU waits for others in part of what launching takes; kernels of an update are the shortest
    own = model_of(a).own[rank]
    update = min(paced_s, own["optimizer"])
    layers = min(paced_s - update, sum(own[phase] for phase in LAYERS))
    most = (1.0 - _KERNELS_SHARE) * layers + (1.0 - KERNELS_SHARE_MIN) * update
    if least >= _SEEN_SHARE_MIN * most:
        most = min(paced_s, _UNSEEN_RATIO * least)
    if active is not None:
        most = min(most, (1.0 - active) * step - elsewhere)
    return least, max(least, most)


def _seen_by(idle: tuple[float, float], *, deep: bool, unseen: bool) -> str:
    if deep:
        return "gaps before the next kernel, in the profiler window"
    if not unseen:
        return "no kernel ran, explained neither by input nor by time between steps"
    least, most = (1000 * seconds for seconds in idle)
    return f"between {least:.1f} and {most:.1f} ms a step: utilisation may not count gaps between launches, --deep does"


def _basis(*, unseen: bool) -> str:
    if unseen:
        return "idle time between kernels is unknown: from none to most of the launch time"
    return "the GPU no longer idles between kernels, or half as long"


def _if_queued(a: Analysis, spared: dict[int, float], *, hopeful: bool) -> float:
    """The step if the GPU idled so much less in the passes, as far as loading keeps up."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, seconds in spared.items():
        whole = sum(model.own[rank][phase] for phase in COMPUTE)
        keep = max(0.0, 1.0 - seconds / max(whole, 1e-12))
        changes |= {(rank, phase): model.own[rank][phase] * keep for phase in COMPUTE}
    return model.step_if(changes, floor_s=loading_floor_s(a, hopeful=hopeful))


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    facts = facts_of(a, rank)
    fixes = []
    peak = a.get(GPU_PEAK_SHARE, rank)
    if peak is not None and peak <= _MEMORY_SHARE_MAX:
        fixes.append(Fix("a larger batch: the same number of kernels, each of them longer", "", None, "small change"))
    if not facts.get("compiled_frames"):
        compiled = ModelChange(Invocation("torch.compile", (Expression("model"),), _REDUCE_OVERHEAD.arguments))
        fixes.append(Fix.of("compile the model: fewer kernels, replayed as a CUDA graph", compiled, None, "one line"))
    else:
        fixes.append(
            Fix("replay the step as a CUDA graph", 'mode="reduce-overhead"', None, "one line", call=_REDUCE_OVERHEAD)
        )
    if name := fused_form(a, rank):
        fused = CallChange.of(name, fused=True)
        fixes.append(Fix.of("a fused optimizer: one kernel instead of many", fused, None, "one line"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "Kernel launch overhead",
    check,
    needs=(STEP_TIME_S, GPU_HOST_PACED_S),
    thresholds={
        "idle": Threshold(0.10, "of the step: less is explained by the first kernels of each phase"),
    },
    traced=True,
)
