"""DataParallel loads GPU 0.

What it does: finds `nn.DataParallel` over several GPUs of which the first carries more than the others.

Why it is slow: one process drives all GPUs from Python threads. In each step it copies the whole model from GPU 0 to the others, scatters
the batch, gathers all outputs on GPU 0 and computes the loss there; the others wait for it, and for the interpreter's lock.

Evidence: the line that made it, its number of GPUs; the memory in use on each GPU, and how busy each was.

Fix: one process a GPU: DistributedDataParallel, started by torchrun. No diff is given: the command changes too, and what one process alone
may do from then on (logs, checkpoints, evaluation) is for whoever knows the script to say.

Estimate: the first GPU's load brought to the mean of all: 1 - balanced/actual. What the interpreter's lock costs comes on top, unknown.

False alarms: DataParallel over one GPU does no harm. GPUs that are loaded alike are told as such by nothing here. What others hold on
these GPUs is no load of the job's: where it may hide who carries more, the rule has not looked.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
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
    devices = a.by_rank("parallel.devices")
    rank = max(devices, key=lambda r: devices[r])
    gpus = [gpu for gpu in a.gpu_view.used if rank in gpu.ranks]
    held = {gpu: mb for gpu in gpus if (mb := of_gpu(a, "gpu.mem_used_mb", gpu)) is not None}
    first = next((gpu for gpu in held if rank in gpu.first_of), None)
    if devices[rank] < t["devices"]:
        return Clear(RULE.id)
    if first is None or len(held) < 2:
        return NotMeasured(RULE.id, ("gpu.mem_used_mb",))
    more, at_most = _excess(a, first, held)
    balanced, busy = _balance(a, first, gpus)
    if more < 1.0 + t["excess"] and balanced > 1.0 - t["excess"]:
        hidden = _strangers_compute(a, gpus) or at_most >= 1.0 + t["excess"]
        return NotMeasured(RULE.id, ("gpu.foreign_processes",)) if hidden else Clear(RULE.id)
    step, model = a.value("step.time_s"), model_of(a)
    best = model.step_if({(rank, phase): model.own[rank][phase] * balanced for phase in COMPUTE})
    lost = (step - best) / 2
    return Finding(
        rule=RULE.id,
        title=f"DataParallel loads {listed([first])} more than the others",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.85),
        seconds_per_step=lost,
        scope=Affected(ranks=(rank,) if a.world_size > 1 else (), gpus=tuple(gpu.index for gpu in gpus)),
        evidence=(
            Evidence(
                "parallel.devices", devices[rank], "GPUs", t["devices"], "among which DataParallel splits each batch"
            ),
            Evidence(
                "gpu.mem_used_mb",
                held[first],
                "MB",
                None,
                f"in use on {listed([first])}, {more:.2f} times the mean of the others",
            ),
            *busy,
        ),
        fixes=(
            Fix(
                "one process a GPU: DistributedDataParallel, started by torchrun "
                "(no diff: the command changes too, and which process logs and saves)",
                _CHANGE.format(devices=round(devices[rank])),
                _where(a, rank),
                "larger change",
            ),
        ),
        saving=model.saving(best, step, "the load of all GPUs as that of their mean") if lost > 0 else None,
    )


def _excess(a: Analysis, first: Gpu, held: Mapping[Gpu, float]) -> tuple[float, float]:
    """How many times the mean of the others the first holds, at least and at most: nobody knows when strangers held what they did."""
    others = [gpu for gpu in held if gpu is not first]
    own = {gpu: max(0.0, mb - _of_strangers(a, gpu, mb)) for gpu, mb in held.items()}
    all_of_them, own_alone = (max(sum(mb[gpu] for gpu in others) / len(others), 1e-9) for mb in (held, own))
    return own[first] / all_of_them, held[first] / own_alone


def _of_strangers(a: Analysis, gpu: Gpu, held_mb: float) -> float:
    """All of it where strangers are on this GPU and nobody knows what they hold."""
    if not of_gpu(a, "gpu.foreign_processes", gpu):
        return 0.0
    theirs = of_gpu(a, "gpu.foreign_mem_mb", gpu)
    return held_mb if theirs is None else theirs


def _strangers_compute(a: Analysis, gpus: list[Gpu]) -> bool:
    """On one of these, or they may: then how busy it is says nothing of the job's load."""
    there = [gpu for gpu in gpus if of_gpu(a, "gpu.foreign_processes", gpu)]
    return any(of_gpu(a, "gpu.foreign_sm_share", gpu) != 0.0 for gpu in there)


def _balance(a: Analysis, first: Gpu, gpus: list[Gpu]) -> tuple[float, tuple[Evidence, ...]]:
    """(mean over the first's of how busy these GPUs are, what tells it); 1 where others are busier, or nobody knows."""
    for name, what in (
        ("gpu.sm_active_share", "of the SMs had work on"),
        ("gpu.util_share", "of the time a kernel was resident on"),
    ):
        shares = [share for gpu in gpus if (share := of_gpu(a, name, gpu)) is not None]
        if len(shares) == len(gpus) and max(shares) > 0 and not _strangers_compute(a, gpus):
            own, mean = of_gpu(a, name, first) or 0.0, sum(shares) / len(shares)
            note = f"{what} {listed([first])}; the mean of all is {100 * mean:.0f} %"
            return min(1.0, mean / max(own, 1e-9)), (Evidence(name, own, "", None, note),)
    return 1.0, ()


def _where(a: Analysis, rank: int) -> Where | None:
    for made in facts_of(a, rank).get("data_parallel") or ():
        if isinstance(made, dict) and made.get("file"):
            return Where(str(made["file"]), int(made["line"]))
    return None


RULE = rule(
    __name__,
    "DataParallel loads GPU 0",
    check,
    needs=("step.time_s", "parallel.devices"),
    explains=("CMP003", "CMP008"),
    thresholds={
        "devices": Threshold(2, "GPUs: over one it is only a wrapper"),
        "excess": Threshold(
            0.10, "more memory than the others, or less work on them: gathered outputs and the optimizer's state"
        ),
    },
)
