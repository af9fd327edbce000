"""The instance that the provider says this is, asked for only on request, and whether all of it is here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rn50_advisor.advisor.instances import Instance
from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.triage.found_checks import Item, Remedy, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.gpu.gpu_bus import on_bus
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.topology import host_facts


def instance(setting: TriageOptions) -> Iterator[Item]:
    if not setting.metadata:
        return
    named = setting.named
    if named is None:
        hint = "no cloud metadata service answers here: a container or a firewall may block it"
        yield TriageGap("machine.instance", "the instance type is not known", hint)
        return
    known = named.instance
    yield fact("machine.instance", f"{named.provider} {named.name}", hint="" if known else "it is not in our table")
    seen = host_facts(setting.root)["threads"]
    if known is None or not seen:
        return
    hint = f"{known.words} has {known.vcpus} vCPUs, the kernel shows {seen}: hyper-threading may be switched off on purpose"
    yield judged("machine.vcpus", float(seen), "cores", _band(known, known.vcpus), hint=hint)
    yield fact("machine.gpus_of_instance", float(known.gpus), "GPUs")


def gpu_count(devices: tuple[GpuDevice, ...], known: Instance | None, root: Path = Path("/")) -> Item:
    """Compares the number of GPUs the driver shows with the number the instance type has, if known.

    Fewer are the owner's affair where we see the whole machine: all its cores, and a PCI bus that lacks them. A container sees the bus
    of its host, and may have been given a part of the GPUs.
    """
    count = float(len(devices))
    if known is None:
        return fact("gpu.count", count, "GPUs")
    whole = host_facts(root)["threads"] == known.vcpus and 0 < len(on_bus(root)) < known.gpus
    why = "and its PCI bus has no more" if whole else "a container may have been given only some of them"
    hint = f"{known.words} has {known.gpus} GPUs, the driver shows {count:.0f}: {why}"
    remedy: Remedy = "hand-back" if whole else "note"
    return judged(
        "gpu.count", count, "GPUs", _band(known, known.gpus), remedy=remedy, strict=whole, hint=hint, why=hint
    )


def _band(known: Instance, number: int) -> Band:
    return Band(float(number), None, f"{known.words}: {', '.join(known.sources)}")
