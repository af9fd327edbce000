"""What the GPUs deliver, measured by torch in a process of its own, against what such GPUs were measured to deliver elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.core import format as fmt
from advisor.core.triage import Band, TriageGap
from advisor.reference.gpus import SOURCE, USABLE, Delivery, delivery
from advisor.triage.child import run_child, why_not
from advisor.triage.found import Found, Item, Remedy, Setting, fact, judged
from probes.host.gpu_devices import GpuDevice
from probes.host.gpu_visibility import same_uuid

_SPEC_SHARE = 0.6  # of a vendor's figure, which no program reaches: the best ones come to 0.8
_HELD_SHARE = 0.85  # a sound GPU at its power limit loses some of its first second's rate, a hot one half
_GPUS_OF_TABLE = 8
_BIG_BYTES = 1 << 30
_MATRIX, _BUFFER_BYTES = 8192, 512 << 20
# Seconds for all and for each GPU, quick and full; what was printed until then counts.
_TIMEOUTS_S = ((45.0, 6.0), (120.0, 30.0))

Result = Mapping[str, Any]


def measure(setting: Setting, devices: Sequence[GpuDevice]) -> list[Result | TriageGap]:
    """Everything that the program printed; a gap where it gave nothing, or broke off."""
    results: list[Result | TriageGap] = []
    asked = {
        "device": "cuda",
        "seconds": 0.5 if setting.full else 0.2,
        "sustained_s": 30 if setting.full else 6,
        "matrix": _MATRIX,
        "buffer_bytes": min(_BUFFER_BYTES, _room_bytes(devices)),
        "scratch": str(setting.scratch),
    }
    base_s, each_s = _TIMEOUTS_S[setting.full]
    ended = run_child(
        setting.python,
        "on_gpus",
        asked,
        timeout_s=base_s + each_s * len(devices),
        scratch=setting.scratch,
        on_result=results.append,
        environment={"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
    )
    if ended.code != 0 or ended.timed_out:
        hint = "name the interpreter that trains with --python; it needs a torch that was built for CUDA"
        results.append(TriageGap("gpu.speed", why_not(ended, f"measuring with {setting.python}"), hint))
    elif not _devices(results):
        results.append(
            TriageGap("gpu.speed", "torch sees no GPU", "a torch built for CUDA, and CUDA_VISIBLE_DEVICES, decide")
        )
    return results


def speeds(results: Sequence[Result | TriageGap], devices: Sequence[GpuDevice]) -> Iterator[Item]:
    names = {entry["index"]: _index_of(entry, devices) for entry in _devices(results)}
    reduced: list[Result] = []
    for result in results:
        if isinstance(result, TriageGap):
            yield result
        elif result.get("name") == "allreduce_gb_per_s" and result["value"] is not None:
            reduced.append(result)
        elif result.get("name") not in (None, "devices"):
            place = int(result["gpu"])
            index, name = names.get(place, (place, ""))
            yield _one(result, index, delivery(name), names)
            if result.get("share") is not None:
                yield _held(index, result)
    yield from _reductions(reduced, [name for _, name in names.values()])


def _room_bytes(devices: Sequence[GpuDevice]) -> int:
    """A quarter of the smallest GPU for the pair of buffers: somebody else may be on it."""
    sizes = [device.mem_total_bytes for device in devices if device.mem_total_bytes]
    return min(sizes) // 8 if sizes else _BUFFER_BYTES


def _devices(results: Sequence[Result | TriageGap]) -> list[dict[str, Any]]:
    for result in results:
        if not isinstance(result, TriageGap) and result.get("name") == "devices":
            return list(result["value"])
    return []


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
