"""A rank runs far from its GPU.

What it does: finds ranks that are bound to CPUs of another NUMA node than the one their GPU hangs on.

Why it is slow: kernel launches and copies to the GPU cross the link between the sockets, and so does every batch in pinned memory.

Evidence: the CPUs the rank may run on, and those that the driver (or the kernel) calls near its GPU.

Fix: bind each rank to its GPU's node: `torchrun --numa-binding=node`, or `numactl --cpunodebind=N --membind=N`.

Estimate: none: how much it costs depends on the machine. Measure both.

False alarms: hosts of one node; virtual machines that hide their nodes call all CPUs near. A rank that is not bound at all runs on both
sides and is left alone.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    near = a.by_rank("gpu.near_cpu_share")
    far = [rank for rank, share in near.items() if 1.0 - share >= t["far"]]
    if not far:
        return Clear(RULE.id)
    gpus = {rank: gpu for gpu in a.gpu_view.used for rank in gpu.ranks}
    return Finding(
        rule=RULE.id,
        title=f"{'Ranks' if len(far) > 1 else 'Rank'} {numbers(far)} bound far from the GPU",
        severity="low",
        confidence=confidence(a, cap=0.8),
        seconds_per_step=0.0,
        scope=Affected(
            ranks=() if len(far) == a.world_size > 1 else tuple(far),
            gpus=tuple(sorted({gpus[rank].index for rank in far if rank in gpus})),
        ),
        evidence=tuple(
            Evidence("gpu.near_cpu_share", near[rank], "", 1.0 - t["far"], _note(rank, near[rank], gpus.get(rank)))
            for rank in far[:3]
        ),
        fixes=(
            Fix(
                "bind each rank to the node of its GPU, and compare the steps",
                "torchrun --numa-binding=node … (or numactl --cpunodebind=N --membind=N)",
                None,
                "one line",
            ),
        ),
    )


def _note(rank: int, share: float, gpu: Gpu | None) -> str:
    where = "" if gpu is None else f" {gpu.index}" + (f" on node {gpu.numa_node}" if gpu.numa_node is not None else "")
    return f"rank {rank}: {100 * share:.0f} % of the CPUs it may use are near its GPU{where}"


RULE = rule(
    __name__,
    "a rank runs far from its GPU",
    check,
    needs=("gpu.near_cpu_share",),
    thresholds={
        "far": Threshold(0.9, "of its CPUs: unbound on eight nodes seven eighths are far, and that is nobody's fault")
    },
)
