"""No peer-to-peer access between GPUs.

What it does: finds jobs whose GPUs could reach each other directly but do not: peer-to-peer access is switched off, or
the job runs on GPUs that are far apart in the machine while closer ones are idle.

Fires when: peer-to-peer access is off, or near GPUs are idle while far ones are used; exposed communication ≥ 2 %.

Why it is slow: without peer-to-peer access each byte of a gradient is copied to host memory and back; between sockets
it also crosses their interconnect.

Evidence: the driver's topology and peer-to-peer status for each pair of the job's GPUs; `NCCL_P2P_DISABLE` and
`NCCL_P2P_LEVEL` in the job's environment; the exposed transfer time; that GPUs outside the job were idle.

Fix: remove the variable; choose GPUs on one switch or bridge (`CUDA_VISIBLE_DEVICES`); in virtual machines, and if ACS
or an IOMMU prevents it, ask the operator.

Estimate: the transfer time at the better path's bandwidth: up to 230 GB/s of bus bandwidth over NVLink, 10 to 26
directly over PCIe. If the bytes are not known, a tenth to a half of the exposed transfer time remains over NVLink, and
a half to nine tenths over PCIe. For a job on several hosts nothing is certain, because the network between them may set
the pace.

False alarms: GeForce boards refuse peer-to-peer access by design, and pairs on different sockets of a machine whose
GPUs are all in use are how it was built: the rule stays silent. It also stays silent if the transfer time is
negligible. A GPU with another user's work is not offered as a choice; if it is unknown whether a closer GPU is idle,
the rule reports that it could not measure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Saving
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu, GpuPath
from rn50_advisor.advisor.model.job_changes import EnvironmentChange
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_IDLE, GPU_PAIRS
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.communication.comm_cost import several_hosts, variables_of, wire_left
from rn50_advisor.rules.gpu.gpu_names_and_cost import of_gpu, on_each_host, placed
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAR = ("NODE", "SYS")
_NVLINK = -1
_ORDER = ("PSB", "PIX", "PXB", "PHB", *_FAR)
# The levels of NCCL_P2P_LEVEL used to be numbers, which are still accepted.
_P2P_OFF = {"NCCL_P2P_DISABLE": ("1",), "NCCL_P2P_LEVEL": ("LOC", "0")}
_REFUSED = {"DR": "switched off in the driver's settings", "NS": "not supported here", "CNS": "refused by the chipset"}


@dataclass(frozen=True, slots=True)
class _Link:
    """GB/s of the links at best and at worst (None if unknown), and the share of transfer time that remains if bytes are unknown."""

    gb_per_s: tuple[float, float | None]
    remains: tuple[float, float]


_NVLINK_PATH = _Link((230.0, None), (0.1, 0.5))
_PCIE_PATH = _Link((26.0, 10.0), (0.5, 0.9))


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    view, wire, step = a.gpu_view, a.get(COMM_WIRE_S), a.value(STEP_TIME_S)
    if wire is not None and wire < t["wire"] * step:
        return Clear(RULE.id)
    used = {gpu.index for gpu in view.used}
    pairs = [path for path in view.paths if {path.a, path.b} <= used]
    found = _switched_off(a, pairs) or _refused(pairs) or _badly_chosen(a)
    if not isinstance(found, Answer):
        return found or Clear(RULE.id)
    saving = None if not wire else _saving(a, found.link)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    exposed = (
        (Evidence.of(COMM_WIRE_S, wire, t["wire"] * step, "per step, not hidden by compute", form="explains"),)
        if wire
        else ()
    )
    return Finding(
        rule=RULE.id,
        title=found.title,
        severity=severity(lost / step) or "low",  # a hint if the transfer was not timed
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        scope=Affected(gpus=tuple(sorted(found.gpus or used)), hosts=found.hosts),
        evidence=(*found.evidence, *exposed),
        fixes=(found.fix,),
        saving=saving if lost > 0 else None,
    )


def _link(*, by_nvlink: bool) -> _Link:
    return _NVLINK_PATH if by_nvlink else _PCIE_PATH


def _saving(a: Analysis, link: _Link) -> Saving:
    (most, least), (at_best, at_worst) = link.gb_per_s, link.remains
    if several_hosts(a):
        least, at_worst = None, 1.0
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in wire_left(a, most, least, (at_best, at_worst)))
    return model.saving(best, worst, "peer-to-peer transfers at the bandwidth of the better path")


@dataclass(frozen=True, slots=True)
class Answer:
    """`gpus`, `hosts`: where it applies; empty for all of the job's."""

    title: str
    evidence: tuple[Evidence, ...]
    fix: Fix
    link: _Link
    gpus: frozenset[int] = frozenset()
    hosts: tuple[str, ...] = ()


def _switched_off(a: Analysis, pairs: list[GpuPath]) -> Answer | None:
    variables = variables_of(a)
    name = next((name for name, off in _P2P_OFF.items() if variables.get(name) in off), "")
    if not name or not any(path.p2p == "OK" or path.path.startswith("NV") for path in pairs):
        return None
    by_nvlink = any(path.path.startswith("NV") for path in pairs)
    note = "these GPUs could reach each other by " + ("NVLink" if by_nvlink else "PCIe")
    fix = Fix.of(f"remove {name} from the job's environment", EnvironmentChange.unset(name), None, "one line")
    evidence = Evidence(name, variables[name], "", None, note)
    return Answer(f"{name} switches peer-to-peer access off", (evidence,), fix, _link(by_nvlink=by_nvlink))


def _refused(pairs: list[GpuPath]) -> Answer | None:
    held = [path for path in pairs if path.p2p in _REFUSED and not path.path.startswith("NV")]
    if not held:
        return None
    first = held[0]
    note = f"GPUs {first.a} and {first.b} ({first.path}), {len(held)} of {len(pairs)} pairs: {_REFUSED[first.p2p]}"
    fix = Fix(
        "allow peer-to-peer access: switch ACS and IOMMU off for these slots, or use another instance",
        "",
        None,
        "outside the code",
    )
    evidence = Evidence("peer to peer", first.p2p, "", None, note)
    return Answer("No peer-to-peer access between GPUs", (evidence,), fix, _PCIE_PATH)


@dataclass(frozen=True, slots=True)
class _Choice:
    """On one host: the job's pair that is farthest apart, and an equal number of GPUs that are closer together."""

    far: GpuPath
    used: tuple[Gpu, ...]
    better: tuple[Gpu, ...]
    worst: int  # of their distances


def _badly_chosen(a: Analysis) -> Answer | NotMeasured | None:
    hosts = dict.fromkeys(gpu.host for gpu in a.gpu_view.used)
    found = [choice for host in hosts if (choice := _choice(a, host)) is not None]
    choices = [choice for choice in found if isinstance(choice, _Choice)]
    if not choices:
        return NotMeasured(RULE.id, (GPU_IDLE,)) if found else None
    better = [gpu for choice in choices for gpu in choice.better]
    evidence = tuple(Evidence("path", choice.far.path, "", None, _note(choice)) for choice in choices[:3])
    change, call = on_each_host(better, "CUDA_VISIBLE_DEVICES={}"), None
    if not better[0].host:  # else each host has its own numbers
        call = EnvironmentChange((("CUDA_VISIBLE_DEVICES", ",".join(str(gpu.own_index) for gpu in better)),))
    return Answer(
        "Distant GPUs in use while closer ones are idle",
        evidence,
        Fix(f"run on {placed(better)}", change, None, "one line", call=call),
        _link(by_nvlink=all(choice.worst < 0 for choice in choices)),
        frozenset(gpu.index for choice in choices for gpu in choice.used),
        tuple(choice.used[0].host for choice in choices if choice.used[0].host),
    )


def _note(choice: _Choice) -> str:
    apart = placed(gpu for gpu in choice.used if gpu.index in (choice.far.a, choice.far.b))
    idle = [gpu for gpu in choice.better if not gpu.ranks]
    nearer = f"{placed(choice.better)} are closer to each other, and {placed(idle)} idle{'s' * (len(idle) == 1)}"
    return f"{apart} are connected by {choice.far.path}; {nearer}"


def _choice(a: Analysis, host: str) -> _Choice | Literal["unknown"] | None:
    """A better set on this host, or None; "unknown" if it would need GPUs that may be busy."""
    view = a.gpu_view
    used = tuple(gpu for gpu in view.used if gpu.host == host)
    kinds, numbers = {gpu.name for gpu in used}, {gpu.index for gpu in used}
    others = [gpu for gpu in view.devices if gpu.host == host and gpu.name in kinds and gpu not in used]
    own = [path for path in view.paths if {path.a, path.b} <= numbers and path.path in _FAR]
    far = max(own, key=_distance, default=None)  # an unknown path is not a far one
    if far is None or not others:
        return None
    distances = {frozenset((path.a, path.b)): _distance(path) for path in view.paths}
    idle = [gpu for gpu in others if of_gpu(a, GPU_IDLE, gpu)]
    found = _nearest([*used, *idle], len(used), distances)
    if found is not None:
        return _Choice(far, used, *found)
    perhaps_idle = [gpu for gpu in others if of_gpu(a, GPU_IDLE, gpu) is None]
    possible = perhaps_idle and _nearest([*used, *idle, *perhaps_idle], len(used), distances)
    return "unknown" if possible else None


def _nearest(
    gpus: Sequence[Gpu], count: int, distances: Mapping[frozenset[int], int]
) -> tuple[tuple[Gpu, ...], int] | None:
    """`count` of these GPUs that connect without crossing sockets, and the largest distance among them; None if there are none.

    A GPU close to one GPU of a switch is close to all of them, so growing a group around each GPU replaces a search over all sets.
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
    "No peer-to-peer access between GPUs",
    check,
    needs=(STEP_TIME_S, GPU_PAIRS),
    thresholds={"wire": Threshold(0.02, "of the step: severity 'low' begins here")},
)
