"""DataParallel loads GPU 0.

What it does: finds `nn.DataParallel` over several GPUs of which the first carries more than the others.

Why it is slow: one process drives all GPUs from Python threads. In each step it copies the whole model from GPU 0 to the others, scatters
the batch, gathers all outputs on GPU 0 and computes the loss there; the others wait for it, and for the interpreter's lock.

Evidence: the line that made it, its number of GPUs; the memory in use on each GPU, and how busy each was.

Fix: one process a GPU: DistributedDataParallel, started by torchrun. No diff is given: the command changes too, and what one process alone
may do from then on (logs, checkpoints, evaluation) is for whoever knows the script to say.

Estimate: the first GPU's load brought to the mean of all: 1 - balanced/actual. What the interpreter's lock costs comes on top, unknown.

False alarms: DataParallel over one GPU does no harm. GPUs that are loaded alike are told as such by nothing here.
"""

from __future__ import annotations

from advisor.core.analysis import Analysis
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from advisor.core.gpus import Gpu
from rules.computing import facts_of
from rules.devices import named, of_gpu
from rules.reading import COMPUTE, model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity

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
    if devices[rank] < t["devices"]:
        return Clear(RULE.id)
    if len(held) < 2:
        return NotMeasured(RULE.id, ("gpu.mem_used_mb",))
    first = max(held, key=lambda gpu: held[gpu])
    others = [mb for gpu, mb in held.items() if gpu is not first]
    more = held[first] / max(sum(others) / len(others), 1e-9)
    balanced, busy = _balance(a, gpus)
    if more < 1.0 + t["excess"] and balanced > 1.0 - t["excess"]:
        return Clear(RULE.id)
    step, model = a.value("step.time_s"), model_of(a)
    best = model.step_if({(rank, phase): model.own[rank][phase] * balanced for phase in COMPUTE})
    lost = (step - best) / 2
    return Finding(
        rule=RULE.id,
        title=f"DataParallel loads {named(first).partition(' (')[0]} more than the others",
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
                f"in use on GPU {first.index}, {more:.2f} times the mean of the others",
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


def _balance(a: Analysis, gpus: list[Gpu]) -> tuple[float, tuple[Evidence, ...]]:
    """(mean over the most of how busy these GPUs are, what tells it); 1 where it is not known of all."""
    for name, what in (
        ("gpu.sm_active_share", "of its SMs had work"),
        ("gpu.util_share", "of the time a kernel was resident on it"),
    ):
        shares = [share for gpu in gpus if (share := of_gpu(a, name, gpu)) is not None]
        if len(shares) == len(gpus) and max(shares) > 0:
            balanced = sum(shares) / len(shares) / max(shares)
            note = f"{what}, the busiest; the mean of all is {100 * sum(shares) / len(shares):.0f} %"
            return balanced, (Evidence(name, max(shares), "", None, note),)
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
