"""The GPUs of this machine: their health by the driver while they work, and what they deliver."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from rn50_advisor.advisor.instances import Link, exactly
from rn50_advisor.advisor.model.documents.machine_triage import TriageGap
from rn50_advisor.advisor.reference.gpu_deliveries import USABLE
from rn50_advisor.advisor.triage.deadline import within
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, fact, unproved
from rn50_advisor.advisor.triage.gpu.cuda_use import usable, wedged
from rn50_advisor.advisor.triage.gpu.gpu_bands import host_generation
from rn50_advisor.advisor.triage.gpu.gpu_bus import missing, silent
from rn50_advisor.advisor.triage.gpu.gpu_checks import described
from rn50_advisor.advisor.triage.gpu.gpu_driver import ENDS_S, DriverReader
from rn50_advisor.advisor.triage.gpu.gpu_health import health
from rn50_advisor.advisor.triage.gpu.gpu_speed import ORDER, MeasuredGpus, measure, speeds, sustained_s
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.instance_checks import gpu_count
from rn50_advisor.probes.host.gpu.gpu_devices import GpuConnection, GpuDevice
from rn50_advisor.probes.host.gpu.gpu_visibility import visible_devices
from rn50_advisor.probes.host.topology import host_facts

DRIVER_ANSWERS_S = 30.0  # without persistence mode it starts each GPU anew: two to three seconds each


def gpus(setting: TriageOptions, watch: Watch) -> Iterator[Item]:
    reader = DriverReader(setting.root)
    patience_s = min(DRIVER_ANSWERS_S, setting.left_s)
    devices = within(patience_s, reader.meet)
    if devices is None:
        late = patience_s < DRIVER_ANSWERS_S
        yield (
            TriageGap("gpu.*", "the time limit was reached before the driver was queried")
            if late
            else wedged(patience_s)
        )
        return
    if not devices:
        gaps = reader.gaps()
        yield from silent(gaps, setting.root)
        yield from missing((), gaps, setting.root)
        return
    driver, cuda = reader.versions()
    yield fact("gpu.driver", driver, hint="" if driver else "the driver does not report its version")
    yield fact("gpu.cuda_of_driver", cuda, hint="" if cuda else "the driver does not report it")
    yield from _named(devices, reader.serials)
    yield from described(devices, reader.paths)
    known = setting.named.instance if setting.named else None
    yield gpu_count(devices, known, setting.root)
    if known is None:
        yield from _instance(devices, link_of(reader.paths), setting)
    done, answers = _measured(reader, setting)
    if not answers:
        yield wedged(ENDS_S)
    recording = reader.recording()
    measured = list(speeds(done, devices, host_generation(setting.root)))
    states = list(health(recording, done.sustained_ns, carrying(measured)))
    yield from states
    yield from missing(devices, recording.gaps, setting.root)
    yield from usable(done, devices, _visible(devices), longest_s=sustained_s(setting))
    yield from over_links_as_built(beside_strangers(measured, states), states)


def _measured(reader: DriverReader, setting: TriageOptions) -> tuple[MeasuredGpus, bool]:
    """Returns torch's measurements, and True if the driver, read at the same time, still answers. Leaves time to wait for it."""
    reader.begin()
    finished = False
    try:
        done = measure(replace(setting, until_s=setting.until_s - ENDS_S), reader.devices)
        finished = True
    finally:
        answers = reader.end(at_once=not finished)
    return done, answers


def carrying(measured: Iterable[Item]) -> frozenset[int]:
    """Returns the GPUs to which copies are as fast as expected: their slot is sound, whatever it reports."""
    sound = (one for one in measured if isinstance(one, Found) and one.check.state == "ok")
    return frozenset(
        gpu
        for one in sound
        if one.is_of_a_gpu("h2d_pinned_gb_per_s") and one.check.expected.lo is not None
        for gpu in one.gpus
    )


def _named(devices: tuple[GpuDevice, ...], serials: Mapping[int, str]) -> Iterator[Item]:
    """The identifiers by which a technician finds a GPU."""
    for device in devices:
        names = {"uuid": device.uuid, "pci_bus_id": device.pci_bus_id, "serial": serials.get(device.index)}
        yield from (fact(f"gpu.{device.index}.{what}", name) for what, name in names.items() if name)


def _visible(devices: tuple[GpuDevice, ...]) -> int | None:
    """Number of GPUs that CUDA shows to a process of this shell; None where MIG decides."""
    chosen = visible_devices({**os.environ, **ORDER}, devices)
    return None if chosen is None or any(device.mig for device in devices) else len(chosen)


def beside_strangers(measured: Iterable[Item], states: Iterable[Item]) -> Iterator[Item]:
    """Marks low results as inconclusive while another process computes on the GPU."""
    shared = {
        gpu
        for one in states
        if isinstance(one, Found) and one.is_of_a_gpu("foreign_processes") and one.check.state == "bad"
        for gpu in one.gpus
    }
    for item in measured:
        if isinstance(item, Found) and item.check.state in ("low", "bad") and not shared.isdisjoint(item.gpus):
            yield unproved(item, "another process used it: measure again after that process ends")
        else:
            yield item


def over_links_as_built(measured: Iterable[Item], states: Iterable[Item]) -> Iterator[Item]:
    """Reduces slow copies to a note if they are as fast as their PCIe link allows and that link, the same for all GPUs here, is a note."""
    least = {
        one.gpus: USABLE * one.check.value
        for one in states
        if isinstance(one, Found) and (one.check.state, one.remedy) == ("bad", "note")
        if one.is_of_a_gpu("pcie_link_gb_per_s") and isinstance(one.check.value, float)
    }
    for item in measured:
        if not isinstance(item, Found) or item.gpus not in least or not item.is_of_a_gpu("h2d_pinned_gb_per_s"):
            yield item
        elif isinstance(item.check.value, float) and item.check.value >= least[item.gpus]:
            yield replace(item, remedy="note")
        else:
            yield item


def link_of(paths: Iterable[GpuConnection]) -> Link | None:
    """The link that is certain: a virtual machine may hide NVLink, but shows none that does not exist."""
    return "nvlink" if any(path.path.startswith("NV") for path in paths) else None


def _instance(devices: tuple[GpuDevice, ...], link: Link | None, setting: TriageOptions) -> Iterator[Item]:
    """Compares the visible hardware with the instance type it was rented as."""
    if len({device.name for device in devices}) != 1:
        return
    machine = host_facts(setting.root)
    memory = devices[0].mem_total_bytes
    host = machine["mem_total_bytes"]
    found = exactly(
        devices[0].name,
        len(devices),
        gpu_memory_gib=memory / (1 << 30) if memory else None,
        link=link,
        vcpus=machine["threads"],
        memory_gib=host / (1 << 30) if host else None,
    )
    if found:
        yield fact(
            "machine.instance_like",
            " or ".join(one.words for one in found),
            hint="from local information; no metadata service was queried",
        )
