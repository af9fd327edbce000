"""Shared by the rules on computing and copying: GPU compute time, idle time that the host could hide, and the limit set by loading."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.job_changes import Assignment, CallChange, Invocation, Setup
from rn50_advisor.advisor.model.measures.comm_measures import COMM_BUCKETS, COMM_SPAN_S
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_HOST_PACED_S,
    GPU_HOST_STEP_S,
    GPU_IDLE_GAP_S,
    GPU_IDLE_INPUT_S,
    GPU_PCIE_GEN,
    GPU_PCIE_WIDTH,
)
from rn50_advisor.advisor.model.measures.input_measures import BATCH_BENCHMARKED, BATCH_SAMPLES
from rn50_advisor.advisor.model.measures.measure import GpuMeasure
from rn50_advisor.advisor.model.measures.pace_measures import PRECISION_CAPABILITY
from rn50_advisor.advisor.model.measures.step_measures import STEP_BATCHES, STEP_RUN_DELAY_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.probes.documents.model_documents import ModelFacts, OptimizerFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.rules.analysis_reading import COMPUTE, LAYERS, common, model_of, taken_from
from rn50_advisor.rules.gpu.gpu_names_and_cost import link_mb_per_s, of_gpu

_LOADING = ("storage", "preprocessing", "loader")
_IN_TURN = ("storage", "preprocessing")  # what a worker does with a batch, one after the other
# For an unknown link: the fastest in use, so that the time is a lower bound of the copy.
_FASTEST_LINK = (5.0, 16.0)
AMPERE = 8.0  # compute capability of the first GPUs with TF32 and bfloat16
_VOLTA = 7.0  # of the first with tensor cores
# Chips TU116 and TU117: Turing by their capability (7.5), and without tensor cores.
_WITHOUT_TENSOR_CORES = re.compile(r"GTX 16\d\d|MX[45]50|\bT(?:400|500|550|600|1000|1200|2000)\b")
ALLOW_TF32 = Setup(
    (
        Invocation("torch.set_float32_matmul_precision", ("high",)),
        Assignment("torch.backends.cudnn.allow_tf32", True),
    )
)
# Optimizers of torch.optim with a fused form on CUDA, and the first torch that has it; before 2.12 Adagrad's was for CPUs only and raises.
_FUSED_SINCE = {"Adam": (2, 0), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 12)}
# The same for CPUs. With momentum SGD took 20 to 102 % of its time, without it 72 to 114 %.
_FUSED_ON_CPU, _FUSED_ON_CPU_SINCE = ("Adam", "AdamW", "Adagrad"), (2, 4)
# Kernels of one or two microseconds, the shortest there are, launched every five to ten: the share of the time in which they run.
KERNELS_SHARE_MIN = 0.2
SCALER = "torch.amp.grad_scaler"  # as it appears in a wait's place


def facts_of(a: Analysis, rank: int) -> RankFacts:
    return a.rank_facts.get(rank, RankFacts())


def layers_of(facts: RankFacts) -> Mapping[str, int]:
    """The model's number of layers of each kind."""
    return facts.get("model", ModelFacts()).get("layers", {})


def torch_version(facts: RankFacts) -> tuple[int, int]:
    """The job's torch version; an unknown one counts as old."""
    found = re.match(r"(\d+)\.(\d+)", facts.get("torch") or "")
    return (int(found[1]), int(found[2])) if found else (0, 0)


def is_torchs(optimizer: OptimizerFacts) -> bool:
    """Others of the same name (bitsandbytes, transformers, timm) take no `fused`. Older runs do not record the module."""
    return optimizer.get("module", "torch.optim").startswith("torch.optim")


def fused_form(a: Analysis, rank: int) -> str:
    """The class of this rank's optimizer if torch has a fused form of it for GPUs that is not used; else empty.

    If a gradient scaler skips the first step of fused SGD, the next one uses uninitialised momentum (torch 2.15) and ruins the parameters.
    """
    facts = facts_of(a, rank)
    optimizer = facts.get("optimizer", OptimizerFacts())
    name = optimizer.get("class", "")
    has_form = is_torchs(optimizer) and torch_version(facts) >= _FUSED_SINCE.get(name, (999, 0))
    if optimizer.get("fused") or not has_form:
        return ""
    scaled = any(wait.rank == rank and wait.through.startswith(SCALER) for wait in a.call_sites.waits)
    return "" if name == "SGD" and scaled and optimizer.get("momentum") != 0 else name


def fused_on_cpu(facts: RankFacts) -> bool:
    """True if torch has a fused form for CPUs of this rank's optimizer, worth its name, that is not used."""
    optimizer = facts.get("optimizer", OptimizerFacts())
    has_form = optimizer.get("class") in _FUSED_ON_CPU and is_torchs(optimizer)
    return has_form and torch_version(facts) >= _FUSED_ON_CPU_SINCE and not optimizer.get("fused")


def updating_s(a: Analysis) -> dict[int, float]:
    """Seconds of each rank's optimizer, less its part of the time that the training thread waits for a core."""
    found, delays = {}, a.by_rank(STEP_RUN_DELAY_S)
    for rank, own in model_of(a).own.items():
        active = sum(own.values()) - own["input_wait"]
        found[rank] = own["optimizer"] * max(0.0, 1.0 - delays.get(rank, 0.0) / max(active, 1e-9))
    return found


def has_tensor_cores(a: Analysis, rank: int) -> bool:
    """True if the GPU has tensor cores, by its capability and, if the driver reports one, the board's name."""
    if a.by_rank(PRECISION_CAPABILITY).get(rank, 0.0) < _VOLTA:
        return False
    return not any(rank in gpu.ranks and _WITHOUT_TENSOR_CORES.search(gpu.name) for gpu in a.gpu_view.used)


def convolves(facts: RankFacts) -> bool | None:
    """True if the model has convolutions, by its layers or its four-dimensional weights; None if neither is known."""
    layers, convolutions = layers_of(facts), facts.get("optimizer", OptimizerFacts()).get("convolutions")
    if any(kind.startswith("Conv") for kind in layers):
        return True
    return convolutions.get("weights", 0) > 0 if convolutions else False if layers else None


def computing_s(a: Analysis, rank: int) -> float:
    """Seconds of forward and backward in which the GPU sets the pace: faster kernels do not shorten launch-bound time."""
    own = model_of(a).own[rank]
    paced = a.get(GPU_HOST_PACED_S, rank) or 0.0
    return max(0.0, sum(own[phase] for phase in LAYERS) - paced)


def if_computed_faster(a: Analysis, ranks: Mapping[int, float], *, hopeful: bool) -> float:
    """The step if these ranks' layers took only this share of today's GPU compute, as far as loading and launching allow."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, share in ranks.items():
        own = {phase: model.own[rank][phase] for phase in LAYERS}
        spared = (1.0 - share) * computing_s(a, rank)
        whole = max(sum(own.values()), 1e-12)
        changes |= {(rank, phase): seconds * max(0.0, 1.0 - spared / whole) for phase, seconds in own.items()}
    left = [
        changes.get((rank, "backward"), own["backward"]) / max(own["backward"], 1e-12)
        for rank, own in model.own.items()
    ]
    floor_s = max(loading_floor_s(a, hopeful=hopeful), launching_floor_s(a))
    return model.step_if(changes, wire_s=exposed_if(a, max(left)), floor_s=floor_s)


def exposed_if(a: Analysis, backward_share: float) -> float:
    """Seconds per step of the exchange that the backward pass does not hide if it takes only this share of its time.

    Buckets of gradients follow each other on the wire as they become ready. If the wire keeps up, only the last one is exposed: then all of
    them together take as many times as long. It cannot take longer than from the first one's start to the last one's end.
    """
    wire_s, span_s = model_of(a).wire_s, a.get(COMM_SPAN_S)
    if span_s is None or span_s <= wire_s:
        return wire_s
    carried_s = min(span_s, max(1.0, a.get(COMM_BUCKETS) or 1.0) * wire_s)
    return max(wire_s, carried_s - backward_share * (span_s - wire_s))


def step_sparing(a: Analysis, spared: Mapping[tuple[int, str], float], *, hopeful: bool) -> float:
    """The step without these seconds of ranks' phases, as fast as loading lets it be.

    A shorter backward pass hides less of the exchange.
    """
    model = model_of(a)
    own = {key: model.own[key[0]][key[1]] for key in spared if key[0] in model.own}
    left = {key: max(0.0, seconds - spared[key]) for key, seconds in own.items()}
    backward = [left[key] / max(seconds, 1e-12) for key, seconds in own.items() if key[1] == "backward"]
    return model.step_if(
        left, wire_s=exposed_if(a, max(backward, default=1.0)), floor_s=loading_floor_s(a, hopeful=hopeful)
    )


def loading_floor_s(a: Analysis, *, hopeful: bool) -> float:
    """The shortest step that loading can keep up with, at most today's; 0 if loading was not measured. At best stages overlap."""
    samples, step = a.get(STEP_SAMPLES), a.value(STEP_TIME_S)
    known = {
        capacity.stage: 1.0 / rate
        for capacity in a.capacities
        if capacity.stage in _LOADING
        and (rate := capacity.hi if hopeful else capacity.samples_per_s) is not None
        and rate > 0
    }
    if not samples or not known:
        return 0.0
    each = max(known.values())
    if not hopeful:
        each = max(each, sum(known.get(stage, 0.0) for stage in _IN_TURN))
    return min(step, samples * len(model_of(a).own) * each)


def launching_floor_s(a: Analysis) -> float:
    """The shortest step that the hosts can launch, at most today's; 0 if it was not measured."""
    return min(a.value(STEP_TIME_S), max(a.by_rank(GPU_HOST_STEP_S).values(), default=0.0))


def hidden_s(a: Analysis, rank: int, blocked_s: float) -> float:
    """Seconds per step that the GPU idles between steps because the host was blocked: they would overlap with compute if it were not."""
    step = a.value(STEP_TIME_S)
    fetch = a.get(GPU_IDLE_INPUT_S, rank) or 0.0
    # waiting for a slow loader remains in any case
    if loading_floor_s(a, hopeful=False) > step - fetch:
        fetch = 0.0
    return min(blocked_s, (a.get(GPU_IDLE_GAP_S, rank) or 0.0) + fetch)


def restarting_s(a: Analysis, rank: int, blocked_s: float) -> float:
    """Seconds per step, at most, that the GPU idles between launches because a host that was blocked does not run ahead.

    The GPU has caught up by then, and runs each kernel as it is launched. With `blocked_s` more, the host would launch them before.
    """
    paced = (a.get(GPU_HOST_PACED_S, rank) or 0.0) - a.by_rank(STEP_RUN_DELAY_S).get(rank, 0.0)
    return max(0.0, min(blocked_s, (1.0 - KERNELS_SHARE_MIN) * paced))


def if_not_held(
    a: Analysis, hidden: Mapping[int, float], *, hopeful: bool, launching: Mapping[int, float] | None = None
) -> float:
    """The step if these seconds between steps overlapped with each rank's compute; `launching`: and these in its passes."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for some, phases in ((hidden, ("gap", "input_wait")), (launching or {}, COMPUTE)):
        for rank, seconds in some.items():
            left = taken_from(model.own[rank], phases, seconds)
            changes |= {(rank, phase): spent for phase, spent in left.items()}
    return model.step_if(changes, floor_s=loading_floor_s(a, hopeful=hopeful))


def batch_size(a: Analysis) -> float:
    """Samples in one of the loader's batches; a step may have several."""
    samples = max(a.by_rank(BATCH_SAMPLES).values(), default=a.get(STEP_SAMPLES) or 1.0)
    return samples / max([1.0, *a.by_rank(STEP_BATCHES).values()])


def timing_source(a: Analysis, ranks: Iterable[int]) -> str:
    """The source of times for other sizes, if it is a benchmark; empty for batches of the run itself."""
    benchmarked = a.by_rank(BATCH_BENCHMARKED)
    return " (a benchmark of this machine, with this model)" if any(rank in benchmarked for rank in ranks) else ""


def link_of(a: Analysis, rank: int) -> tuple[float, str]:
    """(MB/s, the link in words) of a rank's GPU."""
    gpu = next((gpu for gpu in a.gpu_view.used if rank in gpu.ranks), None)
    gen, width = (of_gpu(a, measure, gpu) if gpu else None for measure in (GPU_PCIE_GEN, GPU_PCIE_WIDTH))
    if gen is None or width is None:
        gen, width = _FASTEST_LINK
        name = f"PCIe {gen:.0f} x{width:.0f}"
        return link_mb_per_s(gen, width), f"{name}, the fastest link: the GPU's own is unknown"
    return link_mb_per_s(gen, width), f"PCIe {gen:.0f} x{width:.0f}"


def without_waiting(title: str, call: str, where: Where | None) -> Fix:
    """The fix for a blocking copy to the device: `non_blocking=True`."""
    change = f".{call}({'batch' if call == 'copy_' else 'device'}, non_blocking=True)"
    return Fix(title, change, where, "one line", call=CallChange.of(call, non_blocking=True))


def on_gpu_of(a: Analysis, rank: int, measure: GpuMeasure) -> float | None:
    """A value of the GPU that this rank trains on."""
    gpu = next((gpu for gpu in a.gpu_view.used if rank in gpu.ranks), None)
    return of_gpu(a, measure, gpu) if gpu else None


def trained_by(a: Analysis) -> OptimizerFacts | None:
    """The first rank's optimizer whose parameters were counted; None if there is none (sharded parameters)."""
    optimizers = (facts_of(a, rank).get("optimizer", OptimizerFacts()) for rank in model_of(a).own)
    return next((optimizer for optimizer in optimizers if optimizer.get("elements")), None)


def compute_phases_s(a: Analysis) -> float:
    """Seconds of a step in forward, backward and optimizer, on at least half of the ranks."""
    return common({rank: sum(own[phase] for phase in COMPUTE) for rank, own in model_of(a).own.items()})


def step_computing(a: Analysis, share: float, ranks: Iterable[int] | None = None) -> float:
    """Seconds of the step if forward, backward and optimizer took this share of their time, on these ranks or on all."""
    model = model_of(a)
    chosen = model.own if ranks is None else ranks
    return model.step_if({(rank, phase): share * model.own[rank][phase] for rank in chosen for phase in COMPUTE})
