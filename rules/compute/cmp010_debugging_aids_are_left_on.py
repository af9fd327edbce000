"""Debugging aids are left on.

What it does: finds what is of use while a mistake is looked for, and slows every step when it stays: autograd's anomaly detection, torch's
profiler, a debugger, coverage or profiler of Python, launches that wait for their kernel, collectives that are checked.

Why it is slow: anomaly detection keeps a Python traceback of every operator of the forward and looks for NaN after each of the backward; a
profiler notes every operator; a tracer is called at each line; with `CUDA_LAUNCH_BLOCKING=1` the host waits for each kernel, and the GPU
then for the host. (Forty small linear layers with tanh on a CPU: steps of 16 ms instead of 4.5 under anomaly detection.)

Evidence: what was on as a backward pass began, in how many of the looks at the rank, from its 25th step on.

Fix: take it out; where it is wanted now and then, for a few steps only.

Estimate: none: nothing in the run tells what it costs. Measure it: a run with and a run without, and `rn50-advisor compare`.

False alarms: a profiler with a schedule is on in some steps only. The advisor's own deep windows do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of, part_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_LEAST_LOOKS = 2
_MEASURE = "what it gains, a run with and one without tell: rn50-advisor compare"
# By name: how bad, and what to do.
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
    "CUDA_LAUNCH_BLOCKING": ("medium", "unset CUDA_LAUNCH_BLOCKING"),
    "HIP_LAUNCH_BLOCKING": ("medium", "unset HIP_LAUNCH_BLOCKING"),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": ("medium", "unset PYTORCH_NO_CUDA_MEMORY_CACHING"),
    "TORCH_DISTRIBUTED_DEBUG": ("low", "unset TORCH_DISTRIBUTED_DEBUG, or set it to INFO"),
    "NCCL_DEBUG": ("low", "set NCCL_DEBUG to WARN"),
}
_OF_GPUS = ("CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "PYTORCH_NO_CUDA_MEMORY_CACHING", "NCCL_DEBUG")


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    told = {rank: part_of(facts_of(a, rank), "debugging") for rank in model_of(a).own}
    if not any(known.get("looks", 0) >= _LEAST_LOOKS for known in told.values()):
        return NotMeasured(RULE.id, ("debugging",))
    ranks: dict[str, list[int]] = {}
    for rank, known in told.items():
        for name, seen in part_of(known, "on").items():
            idle = name in _OF_GPUS and not facts_of(a, rank).get("cuda")
            if name in _AIDS and not idle and seen >= t["looks"] * known["looks"]:
                ranks.setdefault(name, []).append(rank)
    if not ranks:
        return Clear(RULE.id)
    worst: Severity = "medium" if any(_AIDS[name][0] == "medium" for name in ranks) else "low"
    everywhere = all(len(on) == len(told) for on in ranks.values())
    affected = sorted({rank for on in ranks.values() for rank in on})
    return Finding(
        rule=RULE.id,
        title=f"Left on: {', '.join(ranks)}",
        severity=worst,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(ranks=() if everywhere else tuple(affected)),
        evidence=tuple(_seen(name, on) for name, on in ranks.items()),
        fixes=tuple(Fix(_AIDS[name][1], _MEASURE, None, "one line") for name in ranks),
        # what is on everywhere makes no rank slower than the others
        explains=() if everywhere else ("CMP007", "COM002"),
    )


def _seen(name: str, ranks: Sequence[int]) -> Evidence:
    note = f"on whenever rank {numbers(ranks)} was looked at; this run does not tell what it costs"
    return Evidence("debugging", name, "", None, note)


RULE = rule(
    __name__,
    "debugging aids are left on",
    check,
    needs=("step.time_s",),
    explains=("CMP003", "CMP008"),
    thresholds={"looks": Threshold(0.9, "a profiler with a schedule is on in half of the steps at most")},
)
