"""What the GPUs deliver, measured by torch in a process of its own, against what such GPUs were measured to deliver elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.core import format as fmt
from advisor.core.triage import Band, TriageGap
from advisor.reference.gpu_names import gpu_model
from advisor.reference.gpus import SOURCE, USABLE, Delivery, delivery
from advisor.triage.child import run_child, why_not
from advisor.triage.found import Found, Item, Remedy, Setting, fact, judged
from probes.host.gpu_devices import GpuDevice
from probes.host.gpu_visibility import same_uuid

_SPEC_SHARE = 0.6  # of a vendor's figure, which no program reaches: the best ones come to 0.8
_HELD_SHARE = 0.85  # a sound GPU at its power limit loses some of its first second's rate, a hot one half
_GPUS_OF_TABLE = 8
_ALL_JOINED = ("A100-SXM", "H100-SXM", "H200", "B200")  # of eight V100 only some pairs are
_BIG_BYTES = 1 << 30
_MATRIX, _BUFFER_BYTES = 8192, 512 << 20
# Seconds for all and for each GPU, quick and full; what was printed until then counts.
_TIMEOUTS_S = ((45.0, 6.0), (120.0, 30.0))

MARKS = ("cuda", "devices", "joined")  # what the program says of itself
ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}  # as NVML counts
REDUCED = "allreduce_gb_per_s"

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """What the program printed. `why`: it did not come to its end; `silent_s`: for so long it had said nothing when it was ended."""

    results: Sequence[Result] = ()
    why: str = ""
    silent_s: float = 0.0

    def told(self, name: str) -> Result | None:
        return next((result for result in self.results if result.get("name") == name), None)


def sustained_s(setting: Setting) -> int:
    """The longest that the program has nothing to say."""
    return 30 if setting.full else 6


def measure(setting: Setting, devices: Sequence[GpuDevice]) -> Measured:
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
        "buffer_bytes": min(_BUFFER_BYTES, _room_bytes(devices)),
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
    return Measured(tuple(results), why, time.monotonic() - last_s if ended.timed_out else 0.0)


def speeds(done: Measured, devices: Sequence[GpuDevice]) -> Iterator[Item]:
    listed = done.told("devices")
    names = {entry["index"]: _index_of(entry, devices) for entry in (listed["value"] if listed else ())}
    reduced: list[Result] = []
    for result in done.results:
        if result.get("name") == REDUCED and result["value"] is not None:
            reduced.append(result)
        elif result.get("name") not in (None, *MARKS):
            place = int(result["gpu"])
            index, name = names.get(place, (place, ""))
            yield _one(result, index, delivery(name), names)
            if result.get("share") is not None:
                yield _held(index, result)
    yield from _peers(done.results, {place: name for place, (_, name) in names.items()})
    yield from _reductions(reduced, [name for _, name in names.values()])


def _room_bytes(devices: Sequence[GpuDevice]) -> int:
    """A quarter of the smallest GPU for the pair of buffers: somebody else may be on it."""
    sizes = [device.mem_total_bytes for device in devices if device.mem_total_bytes]
    return min(sizes) // 8 if sizes else _BUFFER_BYTES


def _index_of(entry: Mapping[str, Any], devices: Sequence[GpuDevice]) -> tuple[int, str]:
    """(NVML's index, name) of a device as torch counts them."""
    for device in devices:
        if same_uuid(str(entry["uuid"]), device.uuid):
            return device.index, device.name
    return int(entry["index"]), str(entry["name"])


def _one(result: Result, index: int, known: Delivery | None, names: Mapping[int, tuple[int, str]]) -> Item:
    name = f"gpu.{index}.{result['name']}"
    if "to" in result:
        name = f"gpu.{index}.to_{names.get(int(result['to']), (int(result['to']), ''))[0]}.p2p_gb_per_s"
    if result["value"] is None:
        return TriageGap(name, str(result.get("reason") or "not measured"), "")
    value, unit = float(result["value"]), str(result["unit"])
    band, remedy = _band(str(result["name"]), known)
    hint = f"GPU {index}: {fmt.number(value)} {unit}"
    hint += f" where {fmt.number(band.lo)} at least are usual" if band.lo is not None else ""
    if result["name"] == "p2p_gb_per_s" and not result.get("direct"):
        return fact(name, value, unit, hint="through host memory: these GPUs do not read each other's memory")
    return judged(name, value, unit, band, remedy=remedy, hint=hint, why=hint)


def _peers(results: Sequence[Result], names: Mapping[int, str]) -> Iterator[Item]:
    """Of GPUs that stand on a board which joins each to each, those pairs that go through host memory all the same."""
    joined = {place for place, name in names.items() if gpu_model(name) in _ALL_JOINED}
    pairs = [r for r in results if r.get("name") == "p2p_gb_per_s" and r["value"] is not None]
    pairs = [pair for pair in pairs if {int(pair["gpu"]), int(pair["to"])} <= joined]
    if pairs:
        direct = sum(bool(pair.get("direct")) for pair in pairs)
        hint = (
            f"{len(pairs) - direct} of {len(pairs)} ways between GPUs lead through host memory: NVLink joins them all, but the "
            "fabric manager, an IOMMU or the virtual machine keeps them from it (nvidia-smi topo -p2p r)"
        )
        band = Band(float(len(pairs)), None, "boards with NVLink from each GPU to each: A100 and later in SXM form")
        yield judged("gpu.direct_ways", float(direct), "ways", band, remedy="fix", strict=True, hint=hint, why=hint)


def _held(index: int, result: Result) -> Found:
    """Of its own first seconds: what heat and power leave."""
    share = float(result["share"])
    band = Band(_HELD_SHARE, None, "of the first seconds: clocks at the power limit move by a tenth, heat takes a half")
    hint = f"GPU {index} falls to {fmt.share(share)} of its first seconds within {result['seconds']} s under load: heat or power"
    return judged(f"gpu.{index}.sustained_share", share, "share", band, remedy="hand-back", hint=hint, why=hint)


def _band(name: str, known: Delivery | None) -> tuple[Band, Remedy]:
    if known is None:
        return Band(source="no published measurement of this GPU in our table"), "note"
    source = f"{USABLE} × {{}} of {known.gpu}: {SOURCE}"
    if name == "hbm_gb_per_s":
        return Band(USABLE * known.hbm_gb_per_s[0], None, source.format(f"{known.hbm_gb_per_s[0]:g} GB/s")), "hand-back"
    if name == "h2d_pinned_gb_per_s" and known.h2d_gb_per_s is not None:
        return Band(USABLE * known.h2d_gb_per_s[0], None, source.format(f"{known.h2d_gb_per_s[0]:g} GB/s")), "hand-back"
    has_bf16 = known.gpu not in ("V100", "T4")
    half = ("matmul_fp16_tflop_per_s", "sustained_tflop_per_s", *(("matmul_bf16_tflop_per_s",) if has_bf16 else ()))
    if name in half:
        share = _SPEC_SHARE if known.half_is_spec else USABLE
        kind = "the vendor's figure" if known.half_is_spec else SOURCE
        figure = f"{share} × {known.half_tflop_per_s:g} TFLOP/s of {known.gpu}: {kind}"
        return Band(share * known.half_tflop_per_s, None, figure), "hand-back"
    return Band(source="no published measurement in our table"), "note"


def _reductions(results: Sequence[Result], names: Sequence[str]) -> Iterator[Item]:
    """By size; only the largest can be compared with what is published, and only on machines of eight."""
    for result in sorted(results, key=lambda one: int(one["bytes"])):
        size, gpus, value = int(result["bytes"]), int(result["gpus"]), float(result["value"])
        known = delivery(names[0]) if names and len(set(names)) == 1 and gpus == _GPUS_OF_TABLE else None
        name = f"gpu.allreduce_{size >> 20}_mib_gb_per_s"
        usual = known and (known.allreduce_ring8_gb_per_s or (known.allreduce8_gb_per_s or (None,))[0])
        if known is None or not usual or size < _BIG_BYTES:
            hint = f"NCCL's bus bandwidth of an all-reduce over {gpus} GPUs"
            yield fact(name, value, "GB/s", hint=hint)
            continue
        band = Band(
            USABLE * usual,
            None,
            f"{USABLE} × {usual:g} GB/s of eight {known.gpu}, NCCL all-reduce of 1 GiB as a ring: {SOURCE}",
        )
        hint = f"an all-reduce of {fmt.bytes_(size)} over {gpus} GPUs: {fmt.number(value)} GB/s of bus bandwidth, {usual:g} are usual"
        yield judged(name, value, "GB/s", band, remedy="hand-back", hint=hint, why=hint)
