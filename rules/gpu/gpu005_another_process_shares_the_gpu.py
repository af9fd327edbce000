"""GPU shared with another process.

What it does: finds processes outside this job that compute on one of its GPUs.

Fires when: it computes there, or holds ≥ 5 % of the memory.

Why it is slow: two processes share a GPU by time slices, and the other one's memory is not available here. In a job
with several ranks all wait for the one that shares its GPU.

Evidence: the driver's list of compute processes without those of the job, their memory, and their share of the SM time.
Where it lists none, as in most containers: memory in use beyond what torch has reserved and what contexts and libraries
take, by the job's other GPUs of this model or, without them, 3 GB for each process.

Fix: move or end the other process; in a scheduler ask for whole GPUs.

Estimate: between nothing and the other processes' share of the SM time. Of processes that are not listed: at most
until this GPU's ranks are as fast as the others.

False alarms: the MPS server and processes that only draw a screen are not counted. In a container, memory that the job
itself takes beside torch (CuPy, DALI, TensorRT) on one of its GPUs alone looks like another process's; hence the lower
confidence.
"""

from __future__ import annotations

import math
from statistics import median

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_FOREIGN_MEM_MB,
    GPU_FOREIGN_PROCESSES,
    GPU_FOREIGN_SM_SHARE,
    GPU_UNEXPLAINED_MB,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import (
    clear_if_measured,
    listed,
    named,
    of_gpu,
    on_each_host,
    placed,
    ranks_on,
    step_if_faster,
    unmeasured,
)
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SLOWER_RATIO_MIN = 1.1  # times the others' passes: below it chance may decide


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    shared = [gpu for gpu in a.gpu_view.used if _matters(a, gpu, t) or _holds_unexplained(a, gpu, t)]
    if not a.gpu_view.used:
        return NotMeasured(RULE.id, (GPU_FOREIGN_PROCESSES,))
    if not shared:
        foreign = [g for g in a.gpu_view.used if (of_gpu(a, GPU_FOREIGN_PROCESSES, g) or 0.0) >= t["processes"]]
        of_foreign = unmeasured(a, foreign, GPU_FOREIGN_MEM_MB)
        return clear_if_measured(RULE.id, *unmeasured(a, a.gpu_view.used, GPU_FOREIGN_PROCESSES), *of_foreign)
    step, model = a.value(STEP_TIME_S), model_of(a)
    busy = {
        gpu: _slower_share(a, gpu) if _holds_unexplained(a, gpu, t) else of_gpu(a, GPU_FOREIGN_SM_SHARE, gpu) or 0.0
        for gpu in shared
    }
    listed_ones = any(_matters(a, gpu, t) for gpu in shared)
    best = step_if_faster(a, ((gpu, 1.0 - share) for gpu, share in busy.items()))
    lost = (step - best) / 2
    saving: Saving | None = model.saving(best, step, f"{listed(shared)} without other processes") if lost > 0 else None
    return Finding(
        rule=RULE.id,
        title=f"GPU sharing: another process {'computes on' if listed_ones else 'holds memory of'} {listed(shared)}",
        severity=severity((step - best) / step) or "low",
        confidence=confidence(a, cap=0.9 if listed_ones else 0.6),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks_on(a, shared), gpus=tuple(gpu.index for gpu in shared)),
        evidence=tuple(e for gpu in shared[:3] for e in _evidence(a, gpu, t)),
        fixes=(
            Fix(
                f"move the other processes off {placed(shared)}",
                on_each_host(
                    shared,
                    "nvidia-smi -i {} --query-compute-apps=pid,name,used_memory --format=csv",
                    "lists them",
                ),
                None,
                "outside the code",
            ),
        ),
        saving=saving,
    )


def _matters(a: Analysis, gpu: Gpu, t: Thresholds) -> bool:
    """Another process that takes SM time or a noticeable amount of memory; if its SM time is unknown, its presence is enough."""
    if (of_gpu(a, GPU_FOREIGN_PROCESSES, gpu) or 0.0) < t["processes"]:
        return False
    share, held = of_gpu(a, GPU_FOREIGN_SM_SHARE, gpu), of_gpu(a, GPU_FOREIGN_MEM_MB, gpu) or 0.0
    much = held >= t["memory"] * (gpu.mem_total_bytes or 0.0) / 1e6
    return share is None or share >= t["sm"] or (held > 0 and much)


def _holds_unexplained(a: Analysis, gpu: Gpu, t: Thresholds) -> bool:
    """True if no processes are listed, and much more memory is in use than this job explains."""
    unexplained = of_gpu(a, GPU_UNEXPLAINED_MB, gpu)
    return unexplained is not None and unexplained >= t["memory"] * (gpu.mem_total_bytes or math.inf) / 1e6


def _slower_share(a: Analysis, gpu: Gpu) -> float:
    """The part of the time that an unlisted process takes, at most: what this GPU needs beyond the job's other GPUs."""
    passes = {rank: sum(own[phase] for phase in COMPUTE) for rank, own in model_of(a).own.items()}
    others = [seconds for rank, seconds in passes.items() if rank not in gpu.ranks]
    own = max((passes[rank] for rank in gpu.ranks if rank in passes), default=0.0)
    if not others or own < _SLOWER_RATIO_MIN * median(others):
        return 0.0
    return 1.0 - median(others) / own


def _evidence(a: Analysis, gpu: Gpu, t: Thresholds) -> list[Evidence]:
    unexplained = of_gpu(a, GPU_UNEXPLAINED_MB, gpu)
    if unexplained is not None:
        least = t["memory"] * (gpu.mem_total_bytes or 0.0) / 1e6
        note = f"{named(gpu)}: {unexplained:.0f} MB in use outside this job; the driver lists no processes here"
        return [Evidence.of(GPU_UNEXPLAINED_MB, unexplained, least, note, gpu=gpu.index)]
    count, held = of_gpu(a, GPU_FOREIGN_PROCESSES, gpu) or 0.0, of_gpu(a, GPU_FOREIGN_MEM_MB, gpu)
    whose = "foreign process" if count == 1 else "foreign processes"
    holding = "its memory is unknown" if held is None else f"holding {held:.0f} MB"
    note = f"{named(gpu)}: {count:.0f} {whose}, {holding}"
    found = [Evidence.of(GPU_FOREIGN_PROCESSES, count, t["processes"], note, gpu=gpu.index)]
    share = of_gpu(a, GPU_FOREIGN_SM_SHARE, gpu)
    if share is not None:
        note = f"{'it takes' if count == 1 else 'they take'} {100 * share:.0f} % of the SM time"
        found.append(Evidence.of(GPU_FOREIGN_SM_SHARE, share, t["sm"], note))
    return found


RULE = rule(
    __name__,
    "GPU shared with another process",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "processes": Threshold(
            1, "process in at least half of the samples: one that is there only briefly does not count"
        ),
        "sm": Threshold(0.02, "of the SM time: severity 'low' begins here"),
        "memory": Threshold(0.05, "of the memory: an idle CUDA context takes a percent or two"),
    },
)
