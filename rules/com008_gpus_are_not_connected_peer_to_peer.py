"""GPUs are not connected peer to peer.

What it does: finds jobs whose GPUs could reach each other directly and do not: peer-to-peer is switched off, or the job has got GPUs on
far ends of the machine while near ones stand idle.

Why it is slow: without peer-to-peer each byte of a gradient is copied to host memory and back; between sockets it crosses their link
besides.

Evidence: the driver's topology and peer-to-peer status of each pair of the job's GPUs, `NCCL_P2P_DISABLE` and `NCCL_P2P_LEVEL` of the job's
environment, the exposed time on the wire.

Fix: remove the variable; choose GPUs on one switch or bridge (`CUDA_VISIBLE_DEVICES`); in virtual machines and with ACS or an IOMMU in the
way ask the operator.

Estimate: the bytes at what the better path carries: over NVLink up to 230 GB/s of bus bandwidth, over PCIe directly 10 to 26. Where bytes
are not known, a tenth to a half of the exposed time on the wire remains over NVLink, a half to nine tenths over PCIe.

False alarms: GeForce boards refuse peer-to-peer by themselves, and pairs on different sockets of a machine whose GPUs are all in use
are how it was built: nothing is said. Nor is it where the wire takes no time worth a word.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from advisor.core.analysis import Analysis
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix, Saving
from advisor.core.gpus import GpuPath, GpuView
from rules.exchange import wire_left
from rules.reading import model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity

_FAR = ("NODE", "SYS")
_ORDER = ("PSB", "PIX", "PXB", "PHB", *_FAR)
_REFUSED = {"DR": "switched off in the driver's settings", "NS": "not supported here", "CNS": "refused by the chipset"}


@dataclass(frozen=True, slots=True)
class _Way:
    """GB/s that links carry, at best and at worst (None: not known), and where bytes are not known what remains of the wire time."""

    gb_per_s: tuple[float, float | None]
    remains: tuple[float, float]


_BY_NVLINK = _Way((230.0, None), (0.1, 0.5))
_BY_PCIE = _Way((26.0, 10.0), (0.5, 0.9))


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    view, wire, step = a.gpu_view, a.get("comm.wire_s"), a.value("step.time_s")
    used = {gpu.index for gpu in view.used}
    pairs = [path for path in view.paths if {path.a, path.b} <= used]
    found = _switched_off(a, pairs) or _refused(pairs) or _badly_chosen(view, used, pairs)
    if found is None or (wire is not None and wire < t["wire"] * step):
        return Clear(RULE.id)
    title, evidence, fix, way = found
    saving = None if not wire else _saving(a, way)
    lost = 0.0 if saving is None else sum(saving.seconds_per_step) / 2
    seen = (Evidence("comm.wire_s", wire, "s", t["wire"] * step, "exposed time on the wire"),) if wire else ()
    return Finding(
        rule=RULE.id,
        title=title,
        severity=severity(lost / step) or "low",  # where nobody timed the wire it is a hint
        confidence=confidence(a, cap=0.8),
        seconds_per_step=lost,
        scope=Affected(gpus=tuple(sorted(used))),
        evidence=(evidence, *seen),
        fixes=(fix,),
        saving=saving if lost > 0 else None,
    )


def _saving(a: Analysis, way: _Way) -> Saving:
    model = model_of(a)
    best, worst = (model.step_if({}, wire_s=left_s) for left_s in wire_left(a, *way.gb_per_s, way.remains))
    return model.saving(best, worst, "peer to peer, by the bandwidth of the better path")


Answer = tuple[str, Evidence, Fix, _Way]


def _switched_off(a: Analysis, pairs: list[GpuPath]) -> Answer | None:
    variables = a.meta.environment.get("variables") or {}
    name = next((n for n, off in (("NCCL_P2P_DISABLE", "1"), ("NCCL_P2P_LEVEL", "LOC")) if variables.get(n) == off), "")
    if not name or not any(path.p2p == "OK" or path.path.startswith("NV") for path in pairs):
        return None
    by_nvlink = any(path.path.startswith("NV") for path in pairs)
    note = "these GPUs could reach each other by " + ("NVLink" if by_nvlink else "PCIe")
    fix = Fix(f"remove {name} from the job's environment", f"unset {name}", None, "one line")
    way = _BY_NVLINK if by_nvlink else _BY_PCIE
    return (
        f"{name} keeps the GPUs from reaching each other",
        Evidence(name, variables[name], "", None, note),
        fix,
        way,
    )


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
    return "GPUs cannot read each other's memory", Evidence("peer to peer", first.p2p, "", None, note), fix, _BY_PCIE


def _badly_chosen(view: GpuView, used: set[int], pairs: list[GpuPath]) -> Answer | None:
    """GPUs of the host that are nearer to each other, as many as the job uses."""
    if len(used) < 2 or len(view.devices) <= len(used) or not pairs:
        return None
    kind = {gpu.name for gpu in view.used}
    free = [gpu.index for gpu in view.devices if gpu.name in kind]
    far = max((path for path in pairs if path.path in _FAR), key=_distance, default=None)
    if far is None:  # a path that nobody knows is not a far one
        return None
    better = min(combinations(free, len(used)), key=lambda chosen: _worst(view, chosen))
    if _worst(view, better) > _ORDER.index("PHB"):
        return None
    names = ",".join(map(str, better))
    note = f"GPUs {far.a} and {far.b} meet at {far.path}; GPUs {names} of this host are nearer"
    fix = Fix(f"run on GPUs {names}", f"CUDA_VISIBLE_DEVICES={names}", None, "one line")
    way = _BY_NVLINK if _worst(view, better) < 0 else _BY_PCIE
    return "The job's GPUs are far from each other", Evidence("path", far.path, "", None, note), fix, way


def _worst(view: GpuView, chosen: tuple[int, ...]) -> int:
    paths = [view.path(one, other) for one, other in combinations(chosen, 2)]
    return max(len(_ORDER) if path is None else _distance(path) for path in paths)


def _distance(path: GpuPath) -> int:
    if path.path.startswith("NV"):
        return -1
    return _ORDER.index(path.path) if path.path in _ORDER else len(_ORDER)


RULE = rule(
    __name__,
    "GPUs are not connected peer to peer",
    check,
    needs=("step.time_s", "gpu.pairs"),
    explains=("COM001",),
    thresholds={"wire": Threshold(0.02, "of the step: severity 'low' begins here")},
)
