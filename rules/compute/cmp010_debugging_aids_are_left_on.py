"""Debugging tools left on.

What it does: finds debugging aids that slow down every step if they stay on: autograd's anomaly detection, torch's
profiler, a debugger, coverage or profiler of Python, `tracemalloc`, launches that wait for their kernel, collectives that are checked.

Fires when: anomaly detection, a profiler, a tracer or `tracemalloc` is on in ≥ 90 % of the checks, or `CUDA_LAUNCH_BLOCKING` and the like
are set.

Why it is slow: anomaly detection stores a Python traceback for every operator of the forward pass and checks each
operator of the backward pass for NaN; a profiler records every operator; a tracer is called at each line; `tracemalloc`
keeps a traceback for each allocation; with `CUDA_LAUNCH_BLOCKING=1` the host waits for each kernel, and then the GPU
for the host. (Forty small linear layers with tanh on a CPU: steps of 16 ms instead of 4.5 under anomaly detection.
Forty with an unfused AdamW: 60 ms instead of 14 under `tracemalloc.start(25)`.) Findings on time that is made of many
short calls are then consequences.

Evidence: what was on when a backward pass began, and in what share of the rank's checks, from its 25th step on.

Fix: remove it; if it is needed now and then, switch it on for a few steps only.

Estimate: for anomaly detection on a CPU, by the step's number of operations: 60 to 160 us for each and 10 to 45 % of the rest of the
backward pass. For the others none: nothing in the run shows their cost. Measure it: a run with and a run without, and `rn50-advisor
compare`.

False alarms: a profiler with a schedule is on in some steps only. The advisor's own profiler windows do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import (
    SEVERITIES,
    Affected,
    Clear,
    Evidence,
    Finding,
    Fix,
    NotMeasured,
    Saving,
    Severity,
)
from rn50_advisor.advisor.model.job_changes import EnvironmentChange, Invocation, JobChange, Setup
from rn50_advisor.advisor.model.measures.step_measures import STEP_OPERATIONS, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.probes.documents.rank_documents import DebuggingAids
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_CHECKS_MIN = 2
# Of anomaly detection, for each node of autograd's graph: seconds in the forward pass and in the backward pass, and a share of the rest of
# the backward pass, in which gradients are searched for NaN; (at worst, at best). Measured with torch 2.14 on one and two cores, eight
# models without it: 1.25 to 1.5 times as fast for convolutions and perceptrons (once 1.12), 1.6 to 1.9 for a small transformer and a small
# MobileNet, 3.4 to 3.7 for a recurrent cell of 760 nodes.
_ANOMALY = ((40e-6, 20e-6, 0.1), (110e-6, 50e-6, 0.45))
_ANOMALY_SHARE_MAX = 0.8  # of a phase
_MEASURE = "measure the gain with and without: rn50-advisor compare"
# By name: severity, and what to do.
_AIDS: Mapping[str, tuple[Severity, str]] = {
    "anomaly detection": (
        "medium",
        "remove torch.autograd.set_detect_anomaly(True), or detect_anomaly() around the step",
    ),
    "profiler": (
        "medium",
        "end the profiler after a few steps: schedule=torch.profiler.schedule(wait=…, warmup=1, active=3)",
    ),
    "tracer": ("medium", "start the job without debugger, coverage or cProfile"),
    "tracemalloc": (
        "medium",
        "remove tracemalloc.start(), -X tracemalloc and PYTHONTRACEMALLOC; take snapshots in a short run of its own",
    ),
    "CUDA_LAUNCH_BLOCKING": ("medium", "unset CUDA_LAUNCH_BLOCKING"),
    "HIP_LAUNCH_BLOCKING": ("medium", "unset HIP_LAUNCH_BLOCKING"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("medium", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
    "TORCH_DISTRIBUTED_DEBUG": ("low", "unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO"),
    "NCCL_DEBUG": ("low", "set NCCL_DEBUG to WARN"),
}
_CALLS: Mapping[str, JobChange] = {
    "anomaly detection": Setup((Invocation("torch.autograd.set_detect_anomaly", (False,)),)),
    **{name: EnvironmentChange.unset(name) for name in _AIDS if name.isupper()},
    "NCCL_DEBUG": EnvironmentChange((("NCCL_DEBUG", "WARN"),)),
}
_AT_EACH_CALL = frozenset(("profiler", "tracer", "tracemalloc"))
_GPU_AIDS = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "NCCL_DEBUG")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    checked = {rank: facts_of(a, rank).get("debugging", DebuggingAids()) for rank in model_of(a).own}
    if not any(known.get("looks", 0) >= _CHECKS_MIN for known in checked.values()):
        return NotMeasured(RULE.id, ("debugging",))
    ranks: dict[str, list[int]] = {}
    for rank, known in checked.items():
        for name, count in known.get("on", {}).items():
            idle = name in _GPU_AIDS and not facts_of(a, rank).get("cuda")
            if name in _AIDS and not idle and count >= t["looks"] * known["looks"]:
                ranks.setdefault(name, []).append(rank)
    if not ranks:
        return Clear(RULE.id)
    worst: Severity = "medium" if any(_AIDS[name][0] == "medium" for name in ranks) else "low"
    everywhere = all(len(on) == len(checked) for on in ranks.values())
    affected = sorted({rank for on in ranks.values() for rank in on})
    saving = _without_anomaly_detection(a, ranks["anomaly detection"]) if [*ranks] == ["anomaly detection"] else None
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    operations = max(a.by_rank(STEP_OPERATIONS).values(), default=0.0)
    counted = () if saving is None else (Evidence.of(STEP_OPERATIONS, operations, note="in a step", form="continues"),)
    return Finding(
        rule=RULE.id,
        title=f"Debugging tools left on: {', '.join(ranks)}",
        severity=min(worst, severity(lost / a.value(STEP_TIME_S)) or worst, key=SEVERITIES.index),
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else tuple(affected)),
        evidence=(*(_evidence(name, on, priced=saving is not None) for name, on in ranks.items()), *counted),
        fixes=tuple(
            Fix(_AIDS[name][1], "" if saving else _MEASURE, None, "one line", call=_CALLS.get(name)) for name in ranks
        ),
        saving=saving,
        circumstances=frozenset({"slows each call"}) if _AT_EACH_CALL & ranks.keys() else frozenset(),
    )


def _without_anomaly_detection(a: Analysis, ranks: Sequence[int]) -> Saving | None:
    """None on a GPU, where each search waits for it, and where the operations were not counted."""
    model, nodes = model_of(a), a.by_rank(STEP_OPERATIONS)
    if a.on_gpu or not nodes.keys() >= set(ranks):
        return None
    worst, best = (
        model.step_if({(rank, phase): s for rank in ranks for phase, s in _left(model.own[rank], nodes[rank], *costs)})
        for costs in _ANOMALY
    )
    return model.saving(best, worst, "no traceback per operation and no NaN check")


def _left(
    own: Mapping[str, float], nodes: float, forward: float, backward: float, share: float
) -> list[tuple[str, float]]:
    spent = {
        "forward": nodes * forward,
        "backward": nodes * backward + share * max(0.0, own["backward"] - nodes * backward),
    }
    return [(phase, own[phase] - min(s, _ANOMALY_SHARE_MAX * own[phase])) for phase, s in spent.items()]


def _evidence(name: str, ranks: Sequence[int], *, priced: bool) -> Evidence:
    note = f"on in nearly all checks of rank{'s' * (len(ranks) > 1)} {numbers(ranks)}"
    return Evidence("debugging", name, "", None, note if priced else f"{note}; this run does not show its cost")


RULE = rule(
    __name__,
    "Debugging tools left on",
    check,
    needs=(STEP_TIME_S,),
    thresholds={"looks": Threshold(0.9, "a profiler with a schedule is on in half of the steps at most")},
)
