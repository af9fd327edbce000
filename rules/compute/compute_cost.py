"""What the rules on computing and copying read in the same way: what a GPU computes, what the host could hide, what loading allows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.rules.analysis_reading import COMPUTE, LAYERS, model_of, taken_from
from rn50_advisor.rules.gpu.gpu_names_and_cost import link_mb_per_s, of_gpu

_LOADING = ("storage", "preprocessing", "loader")
# Where nobody saw the link: the fastest in use, so that the time is what the copy takes at least.
_FASTEST = (5.0, 16.0)
AMPERE = 8.0  # the compute capability from which on GPUs have TF32 and bfloat16
ALLOW_TF32 = 'torch.set_float32_matmul_precision("high"); torch.backends.cudnn.allow_tf32 = True'
# Optimizers of torch.optim with a fused form on CUDA, and the first torch that has it; before 2.12 Adagrad's was for CPUs, and raises.
_FUSED_SINCE = {"Adam": (2, 0), "AdamW": (2, 0), "SGD": (2, 3), "Adagrad": (2, 12)}
SCALER = "torch.amp.grad_scaler"  # as the place of a wait
# Rules whose findings slow launching down.
HELD_HOST = ("CPU001", "CPU002", "CPU003", "CPU005", "DAT005")


def facts_of(a: Analysis, rank: int) -> Mapping[str, Any]:
    told = a.facts.get(str(rank))
    return told if isinstance(told, Mapping) else {}


def part_of(told: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A fact that holds others; nothing where it is not what it should be."""
    found = told.get(name)
    return found if isinstance(found, Mapping) else {}


def layers_of(told: Mapping[str, Any]) -> Mapping[str, int]:
    """How many layers of each kind the model has."""
    layers = part_of(told, "model").get("layers")
    return {str(kind): int(n) for kind, n in layers.items()} if isinstance(layers, Mapping) else {}


def torch_version(told: Mapping[str, Any]) -> tuple[int, int]:
    """Unknown: an old one."""
    found = re.match(r"(\d+)\.(\d+)", str(told.get("torch") or ""))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def fused_form(a: Analysis, rank: int) -> str:
    """The class of this rank's optimizer, where its torch can step it fused on a GPU and does not; else empty.

    Fused SGD whose first step a gradient scaler skips goes on from momentum that nobody wrote (torch 2.15): its parameters are lost.
    """
    told = facts_of(a, rank)
    optimizer = part_of(told, "optimizer")
    name = str(optimizer.get("class"))
    if optimizer.get("fused") or torch_version(told) < _FUSED_SINCE.get(name, (999, 0)):
        return ""
    scaled = any(wait.rank == rank and wait.through.startswith(SCALER) for wait in a.habits.waits)
    return "" if name == "SGD" and scaled and optimizer.get("momentum") != 0 else name


def convolves(told: Mapping[str, Any]) -> bool | None:
    """Whether the model has convolutions, by its layers or its weights of four dimensions; None where nobody saw either."""
    layers, weights = layers_of(told), part_of(part_of(told, "optimizer"), "convolutions").get("weights")
    if any(kind.startswith("Conv") for kind in layers):
        return True
    return weights > 0 if isinstance(weights, int) else False if layers else None


def computing_s(a: Analysis, rank: int) -> float:
    """Seconds of forward and backward at the GPU's own pace: what goes at the pace of launches is not made shorter by faster kernels."""
    own = model_of(a).own[rank]
    paced = a.get("gpu.host_paced_s", rank) or 0.0
    return max(0.0, sum(own[phase] for phase in LAYERS) - paced)


def if_computed_faster(a: Analysis, ranks: Mapping[int, float], *, hopeful: bool) -> float:
    """The step if these ranks' layers took only this share of what the GPU computes of them today, as far as loading allows."""
    model = model_of(a)
    changes: dict[tuple[int, str], float] = {}
    for rank, share in ranks.items():
        own = {phase: model.own[rank][phase] for phase in LAYERS}
        spared = (1.0 - share) * computing_s(a, rank)
        whole = max(sum(own.values()), 1e-12)
        changes |= {(rank, phase): seconds * max(0.0, 1.0 - spared / whole) for phase, seconds in own.items()}
    return model.step_if(changes, floor_s=loading_floor_s(a, hopeful=hopeful))


def loading_floor_s(a: Analysis, *, hopeful: bool) -> float:
    """The shortest step that loading can keep up with, never longer than today's; 0 where nobody saw a batch being made."""
    samples, step = a.get("step.samples"), a.value("step.time_s")
    known = [
        rate
        for capacity in a.capacities
        if capacity.stage in _LOADING
        and (rate := capacity.hi if hopeful else capacity.samples_per_s) is not None
        and rate > 0
    ]
    if not samples or not known:
        return 0.0
    return min(step, samples * len(model_of(a).own) / min(known))


def hidden_s(a: Analysis, rank: int, blocked_s: float) -> float:
    """Seconds of a step in which the GPU idles between steps only because the host was held: with it free, they pass behind compute."""
    step = a.value("step.time_s")
    fetch = a.get("gpu.idle_input_s", rank) or 0.0
    # waiting for a slow loader goes on, whoever waits
    if loading_floor_s(a, hopeful=False) > step - fetch:
        fetch = 0.0
    return min(blocked_s, (a.get("gpu.idle_gap_s", rank) or 0.0) + fetch)


def if_not_held(a: Analysis, hidden: Mapping[int, float], *, hopeful: bool) -> float:
    """The step if so many seconds between steps passed behind each rank's compute."""
    model = model_of(a)
    changes = {
        (rank, phase): left
        for rank, seconds in hidden.items()
        for phase, left in taken_from(model.own[rank], ("gap", "input_wait"), seconds).items()
    }
    return model.step_if(changes, floor_s=loading_floor_s(a, hopeful=hopeful))


def batch_size(a: Analysis) -> float:
    """Samples of one batch as the loader makes it; a step may have several."""
    samples = max(a.by_rank("batch.samples").values(), default=a.get("step.samples") or 1.0)
    return samples / max([1.0, *a.by_rank("step.batches").values()])


def by_whom(a: Analysis, ranks: Iterable[int]) -> str:
    """Where the time of other sizes comes from: batches of the run itself, without a word."""
    benchmarked = a.by_rank("batch.benchmarked")
    return " (a benchmark of this machine, with this model)" if any(rank in benchmarked for rank in ranks) else ""


def link_of(a: Analysis, rank: int) -> tuple[float, str]:
    """(MB/s, the link in words) of a rank's GPU."""
    gpu = next((gpu for gpu in a.gpu_view.used if rank in gpu.ranks), None)
    gen, width = (of_gpu(a, f"gpu.pcie_{name}", gpu) if gpu else None for name in ("gen", "width"))
    if gen is None or width is None:
        gen, width = _FASTEST
        name = f"PCIe {gen:.0f} x{width:.0f}"
        return link_mb_per_s(gen, width), f"the fastest link there is, {name}: its own is not known"
    return link_mb_per_s(gen, width), f"PCIe {gen:.0f} x{width:.0f}"


def without_waiting(call: str) -> str:
    """A copy to the device, as one would write it that does not wait for its end."""
    return f".{call}({'batch' if call == 'copy_' else 'device'}, non_blocking=True)"


def on_gpu_of(a: Analysis, rank: int, name: str) -> float | None:
    """A value of the GPU that this rank trains on."""
    gpu = next((gpu for gpu in a.gpu_view.used if rank in gpu.ranks), None)
    return of_gpu(a, name, gpu) if gpu else None


def stalls_in_line(a: Analysis) -> tuple[str, ...]:
    """What a wait for cores explains besides: stalls within computing. Who waits for a thread of its own that has no core sleeps."""
    pulse = a.pulse
    computing = pulse is not None and pulse.phase in COMPUTE and pulse.coincides in ("", "waiting for a core")
    return ("RUN004",) if computing else ()
