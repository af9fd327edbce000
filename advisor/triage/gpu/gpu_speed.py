"""Compares GPU performance, measured by torch in a separate process, with published results for the same model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50_advisor.advisor.model.documents.machine_triage import Band, TriageGap
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.reference.gpu_names import gpu_model
from rn50_advisor.advisor.triage.child_program import run_child, why_not
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, fact, judged
from rn50_advisor.advisor.triage.gpu.gpu_bands import HELD_SHARE, expected, reduction
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.gpu.gpu_visibility import same_uuid

_FALLEN_SHARE = 0.7  # of its first seconds: what heat leaves of a GPU, a power limit does not
_GPUS_OF_TABLE = 8
_ALL_JOINED = ("A100-SXM", "H100-SXM", "H200", "B200")  # of eight V100 only some pairs are
_BIG_BYTES = 1 << 30
_MATRIX, _BUFFER_BYTES = 8192, 512 << 20
# Seconds for all and for each GPU, quick and full; what was printed until then counts.
_TIMEOUTS_S = ((45.0, 6.0), (120.0, 30.0))

SUSTAINED = ("sustained_begins", "sustained_ends")
MARKS = ("cuda", "devices", "joined", *SUSTAINED)  # the program's reports about itself
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as NVML counts
REDUCED = "allreduce_gb_per_s"

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MeasuredGpus:
    """The output of the benchmark process. `why`: it did not finish; `silent_s`: time since its last output when it was ended."""

    results: Sequence[Result] = ()
    why: str = ""
    silent_s: float = 0.0

    def first(self, name: str) -> Result | None:
        return next((result for result in self.results if result.get("name") == name), None)

    @property
    def sustained_ns(self) -> tuple[int, int] | None:
        """Start and end of the time in which all GPUs were busy at once (monotonic clock); None if it was not measured."""
        start, end = (self.first(name) for name in SUSTAINED)
        return (int(start["value"]), int(end["value"])) if start and end else None


def sustained_s(setting: TriageOptions) -> int:
    """The longest time in which the program writes nothing."""
    return 30 if setting.full else 6


def measure(setting: TriageOptions, devices: Sequence[GpuDevice]) -> MeasuredGpus:
    results: list[Result] = []
    last_s = time.monotonic()

    def on_result(result: Result) -> None:
        nonlocal last_s
        last_s = time.monotonic()
        results.append(result)

    asked = {
        "device": "cuda",
        "seconds": 0.5 if setting.full else 0.2,
        "sustained_s": sustained_s(setting),
        "matrix": _MATRIX,
        "buffer_bytes": min(_BUFFER_BYTES, _buffer_bytes_max(devices)),
        "scratch": str(setting.scratch),
    }
    base_s, each_s = _TIMEOUTS_S[setting.full]
    ended = run_child(
        setting.python,
        "on_gpus",
        asked,
        timeout_s=min(base_s + each_s * len(devices), setting.left_s),
        scratch=setting.scratch,
        on_result=on_result,
        environment=ORDER,
    )
    why = why_not(ended, f"measuring with {setting.python}") if ended.code != 0 or ended.timed_out else ""
    return MeasuredGpus(tuple(results), why, time.monotonic() - last_s if ended.timed_out else 0.0)


def speeds(done: MeasuredGpus, devices: Sequence[GpuDevice], host_generation: int | None = None) -> Iterator[Item]:
    """`host_generation`: of PCIe, that the processor can do."""
    listed = done.first("devices")
    places = {entry["index"]: _device_of(entry, devices) for entry in (listed["value"] if listed else ())}
    reduced: list[Result] = []
    for result in done.results:
        if result.get("name") == REDUCED and result["value"] is not None:
            reduced.append(result)
        elif result.get("name") not in (None, *MARKS):
            place = int(result["gpu"])
            index, name, known = places.get(place, (place, "", None))
            if "to" in result:
                to = int(result["to"])
                yield _about(_peer_copy(result, index, places[to][0] if to in places else to), index)
            else:
                yield _about(_one(result, index, name, known, host_generation), index)
            if result.get("share") is not None:
                yield _about(_held(index, result), index)
    yield from _peers(done.results, {place: name for place, (_, name, _) in places.items()})
    together = [index for index, _, _ in places.values()]
    for one in _reductions(reduced, [name for _, name, _ in places.values()]):
        yield _about(one, *together)


def _about(item: Item, *gpus: int) -> Item:
    return replace(item, gpus=gpus) if isinstance(item, Found) else item


def _buffer_bytes_max(devices: Sequence[GpuDevice]) -> int:
    """A quarter of the smallest GPU for the pair of buffers: somebody else may be on it."""
    sizes = [device.mem_total_bytes for device in devices if device.mem_total_bytes]
    return min(sizes) // 8 if sizes else _BUFFER_BYTES


def _device_of(entry: Mapping[str, Any], devices: Sequence[GpuDevice]) -> tuple[int, str, GpuDevice | None]:
    """(NVML index, name, driver's description) of a device in torch's numbering."""
    for device in devices:
        if same_uuid(str(entry["uuid"]), device.uuid):
            return device.index, device.name, device
    return int(entry["index"]), str(entry["name"]), None


def _one(result: Result, index: int, device: str, known: GpuDevice | None, host_generation: int | None) -> Item:
    name = f"gpu.{index}.{result['name']}"
    if result["value"] is None:
        return _unmeasured(name, result)
    value, unit = float(result["value"]), str(result["unit"])
    of = expected(str(result["name"]), device, known, host_generation)
    hint = f"GPU {index}: {fmt.number(value)} {unit}"
    hint += f" where at least {fmt.number(of.band.lo)} are usual" if of.band.lo is not None else ""
    return judged(name, value, unit, of.band, remedy=of.remedy, bad_share=of.bad_share, hint=hint, why=hint)


def _peer_copy(result: Result, index: int, to: int) -> Item:
    name = f"gpu.{index}.to_{to}.p2p_gb_per_s"
    if result["value"] is None:
        return _unmeasured(name, result)
    through = "" if result.get("direct") else "through host memory: no peer-to-peer access between these GPUs"
    return fact(name, float(result["value"]), str(result["unit"]), hint=through)


def _unmeasured(name: str, result: Result) -> TriageGap:
    return TriageGap(name, str(result.get("reason") or "not measured"), "")


def _peers(results: Sequence[Result], names: Mapping[int, str]) -> Iterator[Item]:
    """GPU pairs that copy through host memory although their board connects every GPU to every other."""
    joined = {place for place, name in names.items() if gpu_model(name) in _ALL_JOINED}
    pairs = [r for r in results if r.get("name") == "p2p_gb_per_s" and r["value"] is not None]
    pairs = [pair for pair in pairs if {int(pair["gpu"]), int(pair["to"])} <= joined]
    if pairs:
        direct = sum(bool(pair.get("direct")) for pair in pairs)
        hint = (
            f"{len(pairs) - direct} of {len(pairs)} GPU pairs communicate through host memory: NVLink connects them all, but the "
            "fabric manager, an IOMMU or the virtual machine prevents its use (nvidia-smi topo -p2p r)"
        )
        band = Band(float(len(pairs)), None, "boards with NVLink from each GPU to each: A100 and later in SXM form")
        yield judged("gpu.direct_ways", float(direct), "ways", band, remedy="fix", strict=True, hint=hint, why=hint)


def _held(index: int, result: Result) -> Found:
    """The share of its initial rate that a GPU sustains under heat and power limits."""
    share = float(result["share"])
    band = Band(HELD_SHARE, None, "of the first seconds: clocks at the power limit vary by a tenth, heat costs half")
    hint = f"GPU {index} falls to {fmt.share(share)} of its first seconds within {result['seconds']} s under load: heat or power"
    name, bad_share = f"gpu.{index}.sustained_share", _FALLEN_SHARE / HELD_SHARE
    return judged(name, share, "share", band, remedy="hand-back", bad_share=bad_share, hint=hint, why=hint)


def _reductions(results: Sequence[Result], names: Sequence[str]) -> Iterator[Item]:
    """Yields the all-reduces by size. Published figures exist only for the largest, and only for machines with eight GPUs."""
    for result in sorted(results, key=lambda one: int(one["bytes"])):
        size, gpus, value = int(result["bytes"]), int(result["gpus"]), float(result["value"])
        of = reduction(names[0]) if names and len(set(names)) == 1 and gpus == _GPUS_OF_TABLE else None
        name = f"gpu.allreduce_{size >> 20}_mib_gb_per_s"
        if of is None or size < _BIG_BYTES:
            yield fact(name, value, "GB/s", hint=f"NCCL's bus bandwidth of an all-reduce over {gpus} GPUs")
            continue
        usual = f"at least {fmt.number(of.band.lo or 0.0)} are usual"
        hint = (
            f"an all-reduce of {fmt.bytes_(size)} over {gpus} GPUs: {fmt.number(value)} GB/s of bus bandwidth, {usual}"
        )
        yield judged(name, value, "GB/s", of.band, remedy=of.remedy, bad_share=of.bad_share, hint=hint, why=hint)
