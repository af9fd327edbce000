"""Why a value of a GPU could not be had: what the probe said of the readings that it is made of."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.recording import Recording

_MADE_OF = {
    "gpu.throttled_share": ("gpu.sw_thermal_s", "gpu.hw_thermal_s", "gpu.thermal_s"),
    "gpu.power_capped_share": ("gpu.power_cap_s",),
    "gpu.clock_mhz": ("gpu.sm_clock_mhz",),
    "gpu.pcie_width": ("gpu.pcie_gen", "gpu.pcie_width", "gpu.util_pct"),
    "gpu.idle": ("gpu.util_pct", "gpu.mem_used_bytes"),
    "gpu.foreign_processes": ("gpu.foreign_processes",),
    "gpu.hardware_xids": ("gpu.xids",),
    "gpu.uncorrected_errors": ("gpu.ecc_uncorrected",),
    "gpu.nvlink_recoveries": ("gpu.nvlink_recoveries",),
    "gpu.nvlink_crc_per_s": ("gpu.nvlink_crc_errors",),
}
_FEW = "too few readings in the run"
_UNSEEN = {
    "gpu.idle": _FEW,
    "gpu.foreign_processes": "the driver lists no process of this job: another PID namespace, or none is shown",
    "gpu.uncorrected_errors": _FEW,
    "gpu.nvlink_recoveries": _FEW,
    "gpu.nvlink_crc_per_s": _FEW,
}


def tell_missing(
    recording: Recording,
    gpus: tuple[Gpu, ...],
    asked: Mapping[str, tuple[Gpu, ...]],
    values: Mapping[tuple[str, str], float],
    missing: dict[str, str],
) -> None:
    """`asked`: by value, those of the host's GPUs that should have it."""
    for name, some in asked.items():
        without = [gpu for gpu in some if (name, f"gpu:{gpu.index}") not in values]
        if without:
            why = _why(recording, _MADE_OF[name], without, gpus)
            missing[name] = why or _UNSEEN.get(name, "too few readings under load")


def _why(recording: Recording, metrics: tuple[str, ...], without: list[Gpu], gpus: tuple[Gpu, ...]) -> str | None:
    """What no GPU of a kind reports was told of the first of them alone."""
    gaps = [gap for gap in recording.gaps if gap.metric in (*metrics, "gpu.*")]
    own = {f"gpu:{gpu.index}" for gpu in without}
    told = [gap for gap in gaps if gap.scope in {"host", *own}]
    where = {gap.scope for gap in told} & own
    if not told:
        kinds = {gpu.name for gpu in without}
        alike = {f"gpu:{gpu.index}" for gpu in gpus if gpu.name in kinds}
        told = [gap for gap in gaps if gap.scope in alike and gap.metric != "gpu.*"]
        where = own
    if not told:
        return None
    numbers = ", ".join(str(index) for index in sorted(int(scope.removeprefix("gpu:")) for scope in where))
    return f"GPU {numbers}: {told[0].reason}" if numbers else told[0].reason
