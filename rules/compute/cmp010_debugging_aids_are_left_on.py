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

Estimate: for anomaly detection on a CPU, in the forward pass the time in which stack samples found tracebacks being formatted, at best
1.3 times that and 70 us for each operation; in the backward pass 0.6 to 1.1 ns for each number searched and 3 to 8 us for each operation.
Without these samples and counts, 60 to 160 us for each operation and 10 to 60 % of the rest of the backward pass. For the others none:
nothing in the run shows their cost. Measure it: a run with and a run without, and `rn50-advisor compare`.

False alarms: a profiler with a schedule is on in some steps only. The advisor's own profiler windows do not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_OPERATIONS,
    STEP_SEARCHED_ELEMENTS,
    STEP_TIME_S,
    STEP_TRACEBACKS_S,
)
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.probes.documents.rank_documents import DebuggingAids
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_CHECKS_MIN = 2


@dataclass(frozen=True, slots=True)
class _Anomaly:
    """What a step loses to anomaly detection. Rates for each node of autograd's graph and each element of a gradient, in seconds."""

    formatting: float  # of the time in which samples saw tracebacks being formatted in the forward pass ...
    node: float  # ... and this for each node beside it
    unseen_node: float  # instead, without samples: a traceback is the longer, the deeper the stack
    element: float  # in the backward pass, and ...
    checked_node: float
    unseen_backward: tuple[
        float, float
    ]  # instead, without a count of elements: for each node, and as a share of the rest


# At worst and at best. Measured with torch 2.14 on two cores with and without it, six models: 9 to 102 us a node in the forward pass, of
# which samples saw 6 to 47; 0.58 to 1.18 ns an element, as many with two threads as with one. These six and eight others were 1.1 to 1.5
# times as fast without it for convolutions, perceptrons and a loss of pairs, 1.6 to 1.9 for small transformers and a small MobileNet, 3.4
# to 5.1 for recurrent cells of 760 and 1083 nodes.
_ANOMALY = (
    _Anomaly(1.0, 0.0, 40e-6, 0.6e-9, 3e-6, (20e-6, 0.1)),
    _Anomaly(1.3, 70e-6, 110e-6, 1.1e-9, 8e-6, (50e-6, 0.6)),
)
_ANOMALY_SHARE_MAX = 0.9  # of a phase
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
    "tracer": (
        "medium",
        "start the job without debugger, coverage or cProfile; with Lightning, Trainer(profiler=None)",
    ),
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
    counted = (
        ()
        if saving is None
        else (Evidence.of(STEP_OPERATIONS, operations, note="in a step", form="continues"), *_seen(a))
    )
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
    seen, elements = a.by_rank(STEP_TRACEBACKS_S), a.by_rank(STEP_SEARCHED_ELEMENTS)
    worst, best = (
        model.step_if(
            {
                (rank, phase): seconds
                for rank in ranks
                for phase, seconds in _left(model.own[rank], nodes[rank], seen.get(rank), elements.get(rank), costs)
            }
        )
        for costs in _ANOMALY
    )
    return model.saving(best, worst, "no traceback per operation and no NaN check")


def _left(
    own: Mapping[str, float], nodes: float, seen_s: float | None, elements: float | None, costs: _Anomaly
) -> list[tuple[str, float]]:
    each, share = costs.unseen_backward
    forward, backward = nodes * costs.unseen_node, nodes * each + share * max(0.0, own["backward"] - nodes * each)
    if seen_s:
        forward = seen_s * costs.formatting + nodes * costs.node
    if elements:
        backward = elements * costs.element + nodes * costs.checked_node
    spent = {"forward": forward, "backward": backward}
    return [(phase, own[phase] - min(s, _ANOMALY_SHARE_MAX * own[phase])) for phase, s in spent.items()]


def _seen(a: Analysis) -> tuple[Evidence, ...]:
    """What the run shows of its cost."""
    seen, elements = (max(a.by_rank(m).values(), default=0.0) for m in (STEP_TRACEBACKS_S, STEP_SEARCHED_ELEMENTS))
    return (
        *([Evidence.of(STEP_TRACEBACKS_S, seen, note="of the forward pass", form="continues")] if seen else []),
        *([Evidence.of(STEP_SEARCHED_ELEMENTS, elements, note="in a step", form="continues")] if elements else []),
    )


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
