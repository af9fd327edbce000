"""The GPUs of this machine: their health by the driver while they work, and what they deliver."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from advisor.core.triage import TriageGap
from advisor.instances import Link, match
from advisor.triage.found import Found, Item, Setting, fact, unproved
from advisor.triage.gpu_driver import DriverReader
from advisor.triage.gpu_health import health
from advisor.triage.gpu_speed import Result, measure, speeds
from advisor.triage.instance import gpu_count
from advisor.triage.load import Watch
from probes.host.gpu_devices import GpuDevice, GpuPath
from probes.host.topology import host_facts


def gpus(setting: Setting, watch: Watch) -> Iterator[Item]:
    reader = DriverReader(setting.root)
    devices = reader.devices()
    if not devices:
        gap = next(iter(reader.gaps()), None)
        reason = gap.reason if gap else "the driver sees no GPU"
        yield TriageGap("gpu.*", reason, gap.hint if gap else "")
        return
    driver, cuda = reader.versions()
    yield fact("gpu.driver", driver, hint="" if driver else "the driver does not tell its version")
    yield fact("gpu.cuda_of_driver", cuda, hint="" if cuda else "the driver does not tell")
    known = setting.named.instance if setting.named else None
    yield gpu_count(devices, known)
    if known is None:
        yield from _instance(devices, link_of(reader.paths()), setting)
    results: list[Result | TriageGap] = []
    reader.begin()
    finished = False
    try:
        results = measure(setting, devices)
        finished = True
    finally:
        reader.end(at_once=not finished)
    states = list(health(reader.recording()))
    yield from states
    yield from beside_strangers(speeds(results, devices), states)


def beside_strangers(measured: Iterable[Item], states: Iterable[Item]) -> Iterator[Item]:
    """What is slow while somebody else computes on the GPU proves nothing about it."""
    shared = {
        one.check.name.removesuffix("foreign_processes")
        for one in states
        if isinstance(one, Found) and one.check.name.endswith("foreign_processes") and one.check.state == "bad"
    }
    places = (*shared, "gpu.allreduce") if shared else ()
    for item in measured:
        if isinstance(item, Found) and item.check.state in ("low", "bad") and item.check.name.startswith(places):
            yield unproved(item, "another process computed on it meanwhile: measure again when it has gone")
        else:
            yield item


def link_of(paths: Iterable[GpuPath]) -> Link | None:
    """What is seen for sure: a virtual machine may hide NVLink, and shows none that is not there."""
    return "nvlink" if any(path.path.startswith("NV") for path in paths) else None


def _instance(devices: tuple[GpuDevice, ...], link: Link | None, setting: Setting) -> Iterator[Item]:
    """What is sold under a name, as far as what is seen tells it."""
    if len({device.name for device in devices}) != 1:
        return
    told = host_facts(setting.root)
    memory = devices[0].mem_total_bytes
    host = told["mem_total_bytes"]
    found = match(
        devices[0].name,
        len(devices),
        gpu_memory_gib=memory / (1 << 30) if memory else None,
        link=link,
        vcpus=told["threads"],
        memory_gib=host / (1 << 30) if host else None,
    )
    if found:
        yield fact("machine.instance_like", found[0].words, hint="by what is seen; nobody was asked")
