"""NUMA mismatch between rank and GPU.

What it does: finds ranks that are bound to CPUs of a different NUMA node than their GPU.

Fires when: ≥ 90 % of a rank's CPUs are on another NUMA node than its GPU.

Why it is slow: kernel launches and copies to the GPU cross the link between the sockets, and so does every batch in
pinned memory.

Evidence: the CPUs that the rank may run on, and those that the driver (or the kernel) reports as close to its GPU.

Fix: bind each rank to its GPU's node: `torchrun --numa-binding=node`, or `numactl --cpunodebind=N --membind=N`.

Estimate: none: the cost depends on the machine. Measure both.

False alarms: hosts with a single node; virtual machines that hide their nodes report all CPUs as close. A rank that is
not bound at all runs on both sides and is not reported.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.job_changes import LauncherChange
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_NEAR_CPU_SHARE
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    near = a.by_rank(GPU_NEAR_CPU_SHARE)
    far = [rank for rank, share in near.items() if 1.0 - share >= t["far"]]
    if not far:
        return Clear(RULE.id)
    gpus = {rank: gpu for gpu in a.gpu_view.used for rank in gpu.ranks}
    return Finding(
        rule=RULE.id,
        title=f"NUMA mismatch: {'ranks' if len(far) > 1 else 'rank'} {numbers(far)} bound to CPUs of another node than the GPU",
        severity="low",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=0.0,
        scope=Affected(
            ranks=() if len(far) == a.world_size > 1 else tuple(far),
            gpus=tuple(sorted({gpus[rank].index for rank in far if rank in gpus})),
        ),
        evidence=tuple(
            Evidence.of(GPU_NEAR_CPU_SHARE, near[rank], 1.0 - t["far"], _note(rank, near[rank], gpus.get(rank)))
            for rank in far[:3]
        ),
        fixes=(
            Fix.of(
                "bind each rank to the NUMA node of its GPU, and compare step times",
                LauncherChange("torchrun", ("--numa-binding=node",)),
                None,
                "one line",
                more=" … (or numactl --cpunodebind=N --membind=N)",
            ),
        ),
    )


def _note(rank: int, share: float, gpu: Gpu | None) -> str:
    where = "" if gpu is None else f" {gpu.index}" + (f" on node {gpu.numa_node}" if gpu.numa_node is not None else "")
    return f"rank {rank}: {100 * share:.0f} % of its allowed CPUs are local to its GPU{where}"


RULE = rule(
    __name__,
    "NUMA mismatch between rank and GPU",
    check,
    severities=("low",),
    needs=(GPU_NEAR_CPU_SHARE,),
    thresholds={"far": Threshold(0.9, "of its CPUs: on eight nodes seven eighths are far even for an unbound rank")},
    triage_checks=("numa.nodes",),
)
