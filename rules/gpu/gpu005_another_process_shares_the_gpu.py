"""Another process shares the GPU.

What it does: finds processes that are not of this job and compute on one of its GPUs.

Why it is slow: two processes take turns on a GPU, a time slice each; the memory of the other is missing here. In a job of several ranks
all wait for the one that shares.

Evidence: the driver's list of compute processes less those of the job, their memory, and their share of the SM time.

Fix: move or end the other process; in a scheduler ask for whole GPUs.

Estimate: between nothing and the strangers' share of the SM time.

False alarms: the server of MPS and what only draws a screen are not counted. In a container whose process ids are not those of the host
nothing is said, because nobody can tell who is a stranger.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_seen,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    step_if_faster,
    unseen,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    shared = [gpu for gpu in a.gpu_view.used if _matters(a, gpu, t)]
    if not shared:
        strangers = [g for g in a.gpu_view.used if (of_gpu(a, "gpu.foreign_processes", g) or 0.0) >= t["processes"]]
        of_strangers = unseen(a, strangers, "gpu.foreign_mem_mb")
        return clear_if_seen(RULE.id, *unseen(a, a.gpu_view.used, "gpu.foreign_processes"), *of_strangers)
    step, model = a.value("step.time_s"), model_of(a)
    busy = {gpu: of_gpu(a, "gpu.foreign_sm_share", gpu) or 0.0 for gpu in shared}
    best = step_if_faster(a, ((gpu, 1.0 - share) for gpu, share in busy.items()))
    lost = (step - best) / 2
    saving: Saving | None = model.saving(best, step, f"{listed(shared)} without other processes") if lost > 0 else None
    return Finding(
        rule=RULE.id,
        title=f"Another process computes on {listed(shared)}",
        severity=severity((step - best) / step) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, shared), gpus=tuple(gpu.index for gpu in shared)),
        evidence=tuple(e for gpu in shared[:3] for e in _evidence(a, gpu, t)),
        fixes=(
            Fix(
                f"move the other processes off {placed(shared)}",
                on_each_host(
                    shared,
                    "nvidia-smi -i {} --query-compute-apps=pid,name,used_memory --format=csv",
                    "shows who they are",
                ),
                None,
                "outside the code",
            ),
        ),
        saving=saving,
    )


def _matters(a: Analysis, gpu: Gpu, t: Thresholds) -> bool:
    """A stranger that takes SM time, or memory worth a word; where its SM time is not told, being there is enough."""
    if (of_gpu(a, "gpu.foreign_processes", gpu) or 0.0) < t["processes"]:
        return False
    share, held = of_gpu(a, "gpu.foreign_sm_share", gpu), of_gpu(a, "gpu.foreign_mem_mb", gpu) or 0.0
    much = held >= t["memory"] * (gpu.mem_total_bytes or 0.0) / 1e6
    return share is None or share >= t["sm"] or (held > 0 and much)


def _evidence(a: Analysis, gpu: Gpu, t: Thresholds) -> list[Evidence]:
    count, held = of_gpu(a, "gpu.foreign_processes", gpu) or 0.0, of_gpu(a, "gpu.foreign_mem_mb", gpu)
    whose = "process of somebody else" if count == 1 else "processes of others"
    holding = "how much it holds is not told" if held is None else f"holding {held:.0f} MB"
    note = f"{named(gpu)}: {count:.0f} {whose}, {holding}"
    found = [Evidence("gpu.foreign_processes", count, "processes", t["processes"], note)]
    share = of_gpu(a, "gpu.foreign_sm_share", gpu)
    if share is not None:
        found.append(Evidence("gpu.foreign_sm_share", share, "", t["sm"], f"took {100 * share:.0f} % of its SM time"))
    return found


RULE = rule(
    __name__,
    "another process shares the GPU",
    check,
    needs=("step.time_s", "gpu.foreign_processes"),
    explains=("CMP007", "COM002", "GPU003"),
    thresholds={
        "processes": Threshold(1, "for half of the looks at least: who only came by is no neighbour"),
        "sm": Threshold(0.02, "of the SM time: severity 'low' begins here"),
        "memory": Threshold(0.05, "of the memory: an idle CUDA context takes a percent or two"),
    },
)
