"""DataParallel load imbalance on GPU 0.

What it does: finds `nn.DataParallel` over several GPUs where the first carries more load than the others.

Fires when: `nn.DataParallel` uses several GPUs, and the first carries more of the job's load than the others.

Why it is slow: one process drives all GPUs from Python threads. In each step it copies the whole model from GPU 0 to
the others, scatters the batch, gathers all outputs on GPU 0 and computes the loss there. The other GPUs wait for GPU 0,
and the threads for the interpreter lock.

Evidence: the line that creates it and its number of GPUs; the memory in use on each GPU, and how busy each was.

Fix: one process per GPU: DistributedDataParallel, started by torchrun. There is no diff, because the command changes
too, and only the script's author can say what a single process should do from then on (logs, checkpoints, evaluation).

Estimate: the first GPU's load drops to the mean of all: 1 - balanced/actual. The cost of the interpreter lock comes on
top and is unknown.

False alarms: DataParallel over one GPU does no harm. For evenly loaded GPUs this rule stays silent. Memory or load of
other users on these GPUs does not count as the job's; if it may hide which GPU carries more, the rule reports that it
could not measure.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_FOREIGN_MEM_MB,
    GPU_FOREIGN_PROCESSES,
    GPU_FOREIGN_SM_SHARE,
    GPU_MEM_USED_MB,
    GPU_SM_ACTIVE_SHARE,
    GPU_UTIL_SHARE,
)
from rn50_advisor.advisor.model.measures.pace_measures import PARALLEL_DEVICES
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.gpu.gpu_names_and_cost import listed, of_gpu
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_CHANGE = (
    'torch.distributed.init_process_group("nccl"); torch.cuda.set_device(local_rank := int(os.environ["LOCAL_RANK"])); '
    "model = DistributedDataParallel(model.cuda(), device_ids=[local_rank]); "
    "DataLoader(..., batch_size=batch // {devices}, sampler=DistributedSampler(dataset)); sampler.set_epoch(epoch); "
    "torchrun --nproc_per_node={devices} train.py"
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    devices = a.by_rank(PARALLEL_DEVICES)
    rank = max(devices, key=lambda r: devices[r])
    gpus = [gpu for gpu in a.gpu_view.used if rank in gpu.ranks]
    held = {gpu: mb for gpu in gpus if (mb := of_gpu(a, GPU_MEM_USED_MB, gpu)) is not None}
    first = next((gpu for gpu in held if rank in gpu.first_of), None)
    if devices[rank] < t["devices"]:
        return Clear(RULE.id)
    if first is None or len(held) < 2:
        return NotMeasured(RULE.id, (GPU_MEM_USED_MB,))
    more, at_most = _excess(a, first, held)
    balanced, busy = _balance(a, first, gpus)
    if more < 1.0 + t["excess"] and balanced > 1.0 - t["excess"]:
        hidden = _others_compute(a, gpus) or at_most >= 1.0 + t["excess"]
        return NotMeasured(RULE.id, (GPU_FOREIGN_PROCESSES,)) if hidden else Clear(RULE.id)
    step, model = a.value(STEP_TIME_S), model_of(a)
    best = model.step_if({(rank, phase): model.own[rank][phase] * balanced for phase in COMPUTE})
    lost = (step - best) / 2
    return Finding(
        rule=RULE.id,
        title=f"DataParallel: {listed([first])} carries more load than the others",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        scope=Affected(ranks=(rank,) if a.world_size > 1 else (), gpus=tuple(gpu.index for gpu in gpus)),
        evidence=(
            Evidence.of(
                PARALLEL_DEVICES,
                devices[rank],
                t["devices"],
                "across which DataParallel splits each batch",
                form="explains",
            ),
            Evidence.of(
                GPU_MEM_USED_MB,
                held[first],
                note=f"on {listed([first])}, {more:.2f} times the mean of the others",
            ),
            *busy,
        ),
        fixes=(
            Fix(
                "one process per GPU: DistributedDataParallel, started by torchrun "
                "(no diff: the command changes too, and which process logs and saves)",
                _CHANGE.format(devices=round(devices[rank])),
                _where(a, rank),
                "larger change",
            ),
        ),
        saving=model.saving(best, step, "balanced load across GPUs") if lost > 0 else None,
    )


def _excess(a: Analysis, first: Gpu, held: Mapping[Gpu, float]) -> tuple[float, float]:
    """The first GPU's memory over the mean of the others, at least and at most: the times of other users' peaks are unknown."""
    others = [gpu for gpu in held if gpu is not first]
    own = {gpu: max(0.0, mb - _foreign_mb(a, gpu, mb)) for gpu, mb in held.items()}
    all_of_them, own_alone = (max(sum(mb[gpu] for gpu in others) / len(others), 1e-9) for mb in (held, own))
    return own[first] / all_of_them, held[first] / own_alone


def _foreign_mb(a: Analysis, gpu: Gpu, held_mb: float) -> float:
    """Memory held by other users' processes; all of it if they are on this GPU and their share is unknown."""
    if not of_gpu(a, GPU_FOREIGN_PROCESSES, gpu):
        return 0.0
    foreign_mb = of_gpu(a, GPU_FOREIGN_MEM_MB, gpu)
    return held_mb if foreign_mb is None else foreign_mb


def _others_compute(a: Analysis, gpus: list[Gpu]) -> bool:
    """Other users compute, or may compute, on one of these GPUs: its utilisation then does not show the job's load."""
    there = [gpu for gpu in gpus if of_gpu(a, GPU_FOREIGN_PROCESSES, gpu)]
    return any(of_gpu(a, GPU_FOREIGN_SM_SHARE, gpu) != 0.0 for gpu in there)


def _balance(a: Analysis, first: Gpu, gpus: list[Gpu]) -> tuple[float, tuple[Evidence, ...]]:
    """(mean utilisation over the first GPU's, the evidence); 1 if other GPUs are busier or it is unknown."""
    for name, what in (
        (GPU_SM_ACTIVE_SHARE, "of the SMs had work on"),
        (GPU_UTIL_SHARE, "of the time a kernel ran on"),
    ):
        shares = [share for gpu in gpus if (share := of_gpu(a, name, gpu)) is not None]
        if len(shares) == len(gpus) and max(shares) > 0 and not _others_compute(a, gpus):
            own, mean = of_gpu(a, name, first) or 0.0, sum(shares) / len(shares)
            note = f"{what} {listed([first])}; the mean of all is {100 * mean:.0f} %"
            return min(1.0, mean / max(own, 1e-9)), (Evidence(name, own, "", None, note, form="continues"),)
    return 1.0, ()


def _where(a: Analysis, rank: int) -> Where | None:
    for made in facts_of(a, rank).get("data_parallel", ()):
        if made.get("file"):
            return Where(made["file"], made["line"])
    return None


RULE = rule(
    __name__,
    "DataParallel load imbalance on GPU 0",
    check,
    needs=(STEP_TIME_S, PARALLEL_DEVICES),
    thresholds={
        "devices": Threshold(2, "GPUs: over one it is only a wrapper"),
        "excess": Threshold(
            0.10, "more memory than the others, or less work on them: gathered outputs and the optimizer's state"
        ),
    },
)
