"""GPUs are not connected peer to peer.

What it does: finds jobs whose GPUs could reach each other directly and do not: peer-to-peer is switched off, or the job has got GPUs on
far ends of a machine while near ones stand idle.

Why it is slow: without peer-to-peer each byte of a gradient is copied to host memory and back; between sockets it crosses their link
besides.

Evidence: the driver's topology and peer-to-peer status of each pair of the job's GPUs, `NCCL_P2P_DISABLE` and `NCCL_P2P_LEVEL` of the job's
environment, the exposed time on the wire; of GPUs that are not the job's that they had nothing to do.

Fix: remove the variable; choose GPUs on one switch or bridge (`CUDA_VISIBLE_DEVICES`); in virtual machines and with ACS or an IOMMU in the
way ask the operator.

Estimate: the bytes at what the better path carries: over NVLink up to 230 GB/s of bus bandwidth, over PCIe directly 10 to 26. Where bytes
are not known, a tenth to a half of the exposed time on the wire remains over NVLink, a half to nine tenths over PCIe. Of a job on
several hosts nothing is promised for sure: their network may set the pace.

False alarms: GeForce boards refuse peer-to-peer by themselves, and pairs on different sockets of a machine whose GPUs are all in use
are how it was built: nothing is said. Nor is it where the wire takes no time worth a word. A GPU with somebody else's work on it is no
choice; where nobody saw whether a nearer one idles, the rule has not looked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuPath
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import several_hosts, wire_left
from rn50_advisor.rules.gpu.gpu_names_and_cost import of_gpu, on_each_host, placed
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAR = ("NODE", "SYS")
_NVLINK = -1
_ORDER = ("PSB", "PIX", "PXB", "PHB", *_FAR)
# The second's levels had numbers once, and still may.
_OFF = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0")}
_REFUSED = {"DR": "switched off in the driver's settings", "NS": "not supported here", "CNS": "refused by the chipset"}


@dataclass(frozen=True, slots=True)
class _Way:
    """GB/s that links carry, at best and at worst (None: not known), and where bytes are not known what remains of the wire time."""

    gb_per_s: tuple[float, float | None]
    remains: tuple[float, float]


_BY_NVLINK = _Way((230.0, None), (0.1, 0.5))
_BY_PCIE = _Way((26.0, 10.0), (0.5, 0.9))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    view, wire, step = a.gpu_view, a.get("comm.wire_s"), a.value("step.time_s")
    if wire is not None and wire < t["wire"] * step:
        return Clear(RULE.id)
    used = {gpu.index for gpu in view.used}
    pairs = [path for path in view.paths if {path.a, path.b} <= used]
    found = _switched_off(a, pairs) or _refused(pairs) or _badly_chosen(a)
    if not isinstance(found, Answer):
        return found or Clear(RULE.id)
    saving = None if not wire else _saving(a, found.way)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    seen = (Evidence("comm.wire_s", wire, "s", t["wire"] * step, "exposed time on the wire"),) if wire else ()
    return Finding(
        rule=RULE.id,
        title=found.title,
        severity=severity(lost / step) or "low",  # where nobody timed the wire it is a hint
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        scope=Affected(gpus=tuple(sorted(found.gpus or used)), hosts=found.hosts),
        evidence=(*found.evidence, *seen),
        fixes=(found.fix,),
        saving=saving if lost > 0 else None,
    )


def _way(*, by_nvlink: bool) -> _Way:
    return _BY_NVLINK if by_nvlink else _BY_PCIE


def _saving(a: Analysis, way: _Way) -> Saving:
    (most, least), (at_best, at_worst) = way.gb_per_s, way.remains
    if several_hosts(a):
        least, at_worst = None, 1.0
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in wire_left(a, most, least, (at_best, at_worst)))
    return model.saving(best, worst, "peer to peer, by the bandwidth of the better path")


@dataclass(frozen=True, slots=True)
class Answer:
    """`gpus`, `hosts`: whose it is; none for all of the job's."""

    title: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    way: _Way
    gpus: frozenset[int] = frozenset()
    hosts: tuple[str, ...] = ()


def _switched_off(a: Analysis, pairs: list[GpuPath]) -> Answer | None:
    variables = a.meta.environment.get("variables") or {}
    name = next((name for name, off in _OFF.items() if variables.get(name) in off), "")
    if not name or not any(path.p2p == "OK" or path.path.startswith("NV") for path in pairs):
        return None
    by_nvlink = any(path.path.startswith("NV") for path in pairs)
    note = "these GPUs could reach each other by " + ("NVLink" if by_nvlink else "PCIe")
    fix = Fix(f"remove {name} from the job's environment", f"unset {name}", None, "one line")
    evidence = Evidence(name, variables[name], "", None, note)
    return Answer(f"{name} keeps the GPUs from reaching each other", (evidence,), fix, _way(by_nvlink=by_nvlink))


def _refused(pairs: list[GpuPath]) -> Answer | None:
    held = [path for path in pairs if path.p2p in _REFUSED and not path.path.startswith("NV")]
    if not held:
        return None
    first = held[0]
    note = f"GPUs {first.a} and {first.b} ({first.path}), {len(held)} of {len(pairs)} pairs: {_REFUSED[first.p2p]}"
    fix = Fix(
        "have peer-to-peer allowed: ACS and IOMMU off for these slots, or another instance",
        "",
        None,
        "outside the code",
    )
    evidence = Evidence("peer to peer", first.p2p, "", None, note)
    return Answer("GPUs cannot read each other's memory", (evidence,), fix, _BY_PCIE)


@dataclass(frozen=True, slots=True)
class _Choice:
    """On one host: the job's pair that is farthest apart, and as many GPUs as the job has that are nearer to each other."""

    far: GpuPath
    used: tuple[Gpu, ...]
    better: tuple[Gpu, ...]
    worst: int  # of their distances


def _badly_chosen(a: Analysis) -> Answer | NotMeasured | None:
    hosts = dict.fromkeys(gpu.host for gpu in a.gpu_view.used)
    found = [choice for host in hosts if (choice := _choice(a, host)) is not None]
    choices = [choice for choice in found if isinstance(choice, _Choice)]
    if not choices:
        return NotMeasured(RULE.id, ("gpu.idle",)) if found else None
    better = [gpu for choice in choices for gpu in choice.better]
    evidence = tuple(Evidence("path", choice.far.path, "", None, _note(choice)) for choice in choices[:3])
    change = on_each_host(better, "CUDA_VISIBLE_DEVICES={}")
    return Answer(
        "The job's GPUs are far from each other",
        evidence,
        Fix(f"run on {placed(better)}", change, None, "one line"),
        _way(by_nvlink=all(choice.worst < 0 for choice in choices)),
        frozenset(gpu.index for choice in choices for gpu in choice.used),
        tuple(choice.used[0].host for choice in choices if choice.used[0].host),
    )


def _note(choice: _Choice) -> str:
    apart = placed(gpu for gpu in choice.used if gpu.index in (choice.far.a, choice.far.b))
    idle = [gpu for gpu in choice.better if not gpu.ranks]
    nearer = f"{placed(choice.better)} are nearer to each other, and {placed(idle)} idle{'s' * (len(idle) == 1)}"
    return f"{apart} meet at {choice.far.path}; {nearer}"


def _choice(a: Analysis, host: str) -> _Choice | Literal["unseen"] | None:
    """None where this host has no better ones; unseen where they are among those of which nobody saw whether they idle."""
    view = a.gpu_view
    used = tuple(gpu for gpu in view.used if gpu.host == host)
    kinds, numbers = {gpu.name for gpu in used}, {gpu.index for gpu in used}
    others = [gpu for gpu in view.devices if gpu.host == host and gpu.name in kinds and gpu not in used]
    own = [path for path in view.paths if {path.a, path.b} <= numbers and path.path in _FAR]
    far = max(own, key=_distance, default=None)  # a path that nobody knows is not a far one
    if far is None or not others:
        return None
    distances = {frozenset((path.a, path.b)): _distance(path) for path in view.paths}
    idle = [gpu for gpu in others if of_gpu(a, "gpu.idle", gpu)]
    found = _nearest([*used, *idle], len(used), distances)
    if found is not None:
        return _Choice(far, used, *found)
    perhaps = [gpu for gpu in others if of_gpu(a, "gpu.idle", gpu) is None]
    unseen = perhaps and _nearest([*used, *idle, *perhaps], len(used), distances)
    return "unseen" if unseen else None


def _nearest(
    gpus: Sequence[Gpu], count: int, distances: Mapping[frozenset[int], int]
) -> tuple[tuple[Gpu, ...], int] | None:
    """So many of these GPUs that meet on this side of a socket's link, and how far the farthest two are; None where none do.

    Whoever is near one GPU of a switch is near all of it: a group grows around each of them, and no set of sets is gone through.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    for limit in range(_NVLINK, _ORDER.index("PHB") + 1):
        for first in ordered:
            group = [first]
            for gpu in ordered:
                if gpu not in group and all(
                    distances.get(frozenset((gpu.index, one.index)), len(_ORDER)) <= limit for one in group
                ):
                    group.append(gpu)
            if len(group) >= count:
                return tuple(sorted(group[:count], key=lambda gpu: gpu.index)), limit
    return None


def _distance(path: GpuPath) -> int:
    if path.path.startswith("NV"):
        return _NVLINK
    return _ORDER.index(path.path) if path.path in _ORDER else len(_ORDER)


RULE = rule(
    __name__,
    "GPUs are not connected peer to peer",
    check,
    needs=("step.time_s", "gpu.pairs"),
    explains=("COM001",),
    thresholds={"wire": Threshold(0.02, "of the step: severity 'low' begins here")},
)
