"""A GPU's identity and location from its driver: no rule needs them, but a support ticket does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.machine_triage import Band
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_NVLINK_CRC_PER_S,
    GPU_NVLINK_RECOVERIES,
    GPU_POWER_LIMIT_W,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.triage.found_checks import Item, fact, judged
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice, cpu_list
from rn50_advisor.rules.gpu import gpu002_a_power_cap_slows_it_more_than_its_peers as gpu002
from rn50_advisor.rules.gpu.gpu_names_and_cost import of_gpu

_LOWERED = gpu002.RULE.thresholds["limit"]


def described(devices: Sequence[GpuDevice], paths: Sequence[GpuConnection]) -> Iterator[Item]:
    """Constant properties of the GPUs."""
    for device in devices:
        here = f"gpu.{device.index}"
        if device.mem_total_bytes:
            yield fact(f"{here}.memory_total_bytes", float(device.mem_total_bytes), "bytes")
        yield fact(f"{here}.ecc", None if device.ecc is None else "on" if device.ecc else "off, or it has none")
        yield fact(f"{here}.mig", f"{len(device.mig_instances)} instances" if device.mig else "off")
        if device.numa_node is not None:
            yield fact(f"{here}.numa_node", str(device.numa_node))
        if device.cpus:
            yield fact(
                f"{here}.near_cpus", device.cpus, hint="processors near it: ranks on others reach it over a longer path"
            )
        if ways := _ways(device.index, paths):
            yield fact(f"{here}.paths", ways, hint="as nvidia-smi topo -m names them")


def seen(recording: Recording, a: Analysis, gpu: Gpu) -> Iterator[Item]:
    """Readings beyond the rules: memory in use before any measurement, limits, link errors."""
    here, scope = f"gpu.{gpu.index}", f"gpu:{gpu.index}"
    used = recording.samples.get(("gpu.mem_used_bytes", scope))
    if used is not None and used.value.size:
        hint = "before anything was measured: the driver's own, and other processes'"
        yield fact(f"{here}.memory_used_bytes", float(used.value[0]), "bytes", hint=hint)
    limit, usual = of_gpu(a, GPU_POWER_LIMIT_W, gpu), gpu.power_limit_default_w
    if limit is not None and usual:
        hint = f"GPU {gpu.index} may take {limit:.0f} W, the board's default is {usual:.0f}: nvidia-smi -i {gpu.index} -pl {usual:.0f}"
        band = Band((1 - _LOWERED.value) * usual, None, f"rule GPU002: {_LOWERED.why}")
        yield judged(f"{here}.power_limit_w", limit, "W", band, remedy="fix", strict=True, hint=hint, why=hint)
    for measure, unit in ((GPU_NVLINK_CRC_PER_S, "errors/s"), (GPU_NVLINK_RECOVERIES, "events")):
        count = of_gpu(a, measure, gpu)
        if count is not None:
            yield fact(
                f"{here}.{measure.name.removeprefix('gpu.')}",
                count,
                unit,
                hint="rule GPU008 judges them with the links",
            )


def _ways(index: int, paths: Sequence[GpuConnection]) -> str:
    """`NV12 to 1-3; SYS to 4-7 (no peer-to-peer: CNS)`."""
    found: dict[tuple[str, str], set[int]] = {}
    for path in paths:
        if index in (path.a, path.b):
            found.setdefault((path.path, path.p2p), set()).add(path.b if path.a == index else path.a)
    return "; ".join(
        f"{way} to {cpu_list(frozenset(others))}" + ("" if p2p == "OK" else f" (no peer-to-peer: {p2p})")
        for (way, p2p), others in found.items()
    )
