"""Expected values for torch's measurements on a GPU: from published measurements of the model, else from its vendor and its link."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import Band
from rn50_advisor.advisor.peaks.gpu_peaks import Peak, peak
from rn50_advisor.advisor.reference.gpu_deliveries import USABLE, Figure, GpuDelivery, delivery
from rn50_advisor.advisor.triage.found_checks import BAD_SHARE, Remedy
from rn50_advisor.probes.host.gpu.gpu_devices import GpuDevice
from rn50_advisor.probes.host.procfs import read_text
from rn50_advisor.rules.gpu.gpu_names_and_cost import link_mb_per_s

HELD_SHARE = 0.85  # a sound GPU at its power limit loses some of its first second's rate
# Share of a vendor's figure, which no program reaches: the best ones get 0.8 of the tensor cores' peak.
_SPEC_SHARE = 0.6
# 0.75 of the lowest share of plain FP32 seen on a sound GPU: an L4, limited by its 72 W (12 of 30.3).
_PLAIN_SHARE = 0.3
_HALF = ("fp16", "bf16")
_SUSTAINED = "sustained_tflop_per_s"
_COPIES: dict[str, Remedy] = {"h2d_pinned_gb_per_s": "hand-back", "d2h_pinned_gb_per_s": "note"}
_LINK = "rule GPU006, x16 of PCIe generation {} as it was seen to carry"
# The first server processor with PCIe 4.0 was AMD's Rome, those with 5.0 Intel's Sapphire Rapids and AMD's Genoa: what is older
# ends a newer GPU's link. By vendor, family and model, as /proc/cpuinfo has them.
_GENERATIONS: tuple[tuple[str, int, range, int], ...] = (
    ("GenuineIntel", 6, range(143, 144), 5),  # Sapphire Rapids
    ("GenuineIntel", 6, range(207, 208), 5),  # Emerald Rapids
    ("GenuineIntel", 6, range(106, 109), 4),  # Ice Lake
    ("GenuineIntel", 6, range(85, 86), 3),  # Skylake, Cascade Lake
    ("GenuineIntel", 6, range(79, 80), 3),  # Broadwell
    ("AuthenticAMD", 23, range(1, 2), 3),  # Naples
    ("AuthenticAMD", 23, range(49, 50), 4),  # Rome
    ("AuthenticAMD", 25, range(0, 16), 4),  # Milan
    ("AuthenticAMD", 25, range(16, 32), 5),  # Genoa
    ("AuthenticAMD", 25, range(160, 176), 5),  # Bergamo
)


@dataclass(frozen=True, slots=True)
class Expected:
    """`bad_share`: a value below this share of the band is bad; 1.0 if sound GPUs of this very model have been measured."""

    band: Band
    remedy: Remedy = "note"
    bad_share: float = BAD_SHARE


def expected(name: str, device: str, driver: GpuDevice | None = None, host_generation: int | None = None) -> Expected:
    """The expected range. `device`: its name; `driver`: the driver's description; `host_generation`: PCIe generation of the processor."""
    known, best = delivery(device), peak(device)
    if name in _COPIES:
        return _copy(name, known, driver, host_generation)
    if name == "hbm_gb_per_s" and known is not None and known.hbm_gb_per_s is not None:
        return _measured(known, known.hbm_gb_per_s, "GB/s")
    if name == _SUSTAINED or name.startswith("matmul_"):
        precision = "fp16" if name == _SUSTAINED else name.split("_")[1]
        held = HELD_SHARE if name == _SUSTAINED else 1.0
        has_units = best is None or precision in best.tflops
        if known is not None and known.half_tflop_per_s is not None and precision in _HALF and has_units:
            return _measured(known, known.half_tflop_per_s, "TFLOP/s", held)
        if best is not None and has_units:
            return _by_vendor(best, precision, known, held)
    return Expected(Band(source="no published measurement of this GPU in our table"))


def reduction(device: str) -> Expected | None:
    """Expected rate of a 1 GiB all-reduce over eight GPUs: the ring's figure if there is one, since NCCL may or may not
    reduce in the switch.
    """
    known = delivery(device)
    figure = known and (known.allreduce_ring8_gb_per_s or known.allreduce8_gb_per_s)
    return None if known is None or not figure else _measured(known, figure, "GB/s")


def host_generation(root: Path = Path("/")) -> int | None:
    """PCIe generation of this processor; None if the table does not list it."""
    fields: dict[str, str] = {}
    for line in (read_text(root / "proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    family, model = fields.get("cpu family", ""), fields.get("model", "")
    if not family.isdigit() or not model.isdigit():
        return None
    key = (fields.get("vendor_id", ""), int(family))
    return next(
        (gen for vendor, kind, models, gen in _GENERATIONS if (vendor, kind) == key and int(model) in models), None
    )


def _measured(known: GpuDelivery, figure: Figure, unit: str, held: float = 1.0) -> Expected:
    lo = USABLE * held * figure.lo
    after = f" × {held} for heat and power" if held < 1.0 else ""
    return Expected(
        Band(lo, None, f"{USABLE}{after} × {figure.lo:g} {unit} of {known.gpu}: {figure.source}"), "hand-back", 1.0
    )


def _by_vendor(best: Peak, precision: str, known: GpuDelivery | None, held: float) -> Expected:
    share = _PLAIN_SHARE if precision == "fp32" else _SPEC_SHARE
    if precision == "tf32" and known is not None and known.half_tflop_per_s is not None:
        # a card limited by power in half precision is limited here too
        share = min(share, USABLE * known.half_tflop_per_s.lo / best.tflops["fp16"])
    figure = best.tflops[precision]
    source = f"{share:.2g} × the vendor's {figure:g} TFLOP/s of {best.gpu} in {precision}: {best.source}"
    return Expected(Band(share * held * figure, None, source), "hand-back")


def _copy(name: str, known: GpuDelivery | None, driver: GpuDevice | None, host: int | None) -> Expected:
    """Expected rate of copies from pinned memory. Device-to-host copies on healthy machines reached a quarter of it, so
    that direction is only a note.

    What the processor's own generation of PCIe ends is how the machine was built.
    """
    remedy = _COPIES[name]
    own = driver.pcie_gen_gpu_max or driver.pcie_gen_max if driver else None
    carries = {gen: link_mb_per_s(gen, 16) / 1e3 for gen in (own, host) if gen}
    figure = known.h2d_gb_per_s if known else None
    if known is not None and figure is not None and not (host and carries[host] < figure.lo):
        found = _measured(known, figure, "GB/s")
        return found if remedy == "hand-back" else Expected(found.band, remedy)
    if not own and not (figure and host):
        return Expected(Band(source="no published measurement of this GPU in our table"))
    gen = min(carries)
    ends = ", where the processor ends it" if gen == host != own else ""
    return Expected(
        Band(USABLE * carries[gen], None, f"{USABLE} × {carries[gen]:g} GB/s: {_LINK.format(gen)}{ends}"), remedy
    )
