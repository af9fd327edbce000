"""Explains why a GPU measure is missing, from the probe's gaps in the readings that the measure needs."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_CLOCK_MHZ,
    GPU_CLOCK_SET_SHARE,
    GPU_FOREIGN_PROCESSES,
    GPU_HARDWARE_XIDS,
    GPU_IDLE,
    GPU_NVLINK_CRC_PER_S,
    GPU_NVLINK_RECOVERIES,
    GPU_PCIE_WIDTH,
    GPU_POWER_CAPPED_SHARE,
    GPU_THROTTLED_SHARE,
    GPU_UNCORRECTED_ERRORS,
)
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording

_MADE_OF = {
    GPU_THROTTLED_SHARE: ("gpu.sw_thermal_s", "gpu.hw_thermal_s", "gpu.thermal_s"),
    GPU_POWER_CAPPED_SHARE: ("gpu.power_cap_s",),
    GPU_CLOCK_SET_SHARE: ("gpu.clock_reasons",),
    GPU_CLOCK_MHZ: ("gpu.sm_clock_mhz",),
    GPU_PCIE_WIDTH: ("gpu.pcie_gen", "gpu.pcie_width", "gpu.util_pct"),
    GPU_IDLE: ("gpu.util_pct", "gpu.mem_used_bytes"),
    GPU_FOREIGN_PROCESSES: ("gpu.foreign_processes",),
    GPU_HARDWARE_XIDS: ("gpu.xids",),
    GPU_UNCORRECTED_ERRORS: ("gpu.ecc_uncorrected",),
    GPU_NVLINK_RECOVERIES: ("gpu.nvlink_recoveries",),
    GPU_NVLINK_CRC_PER_S: ("gpu.nvlink_crc_errors",),
}
_FEW = "too few readings in the run"
_REASONS = {
    GPU_IDLE: _FEW,
    GPU_FOREIGN_PROCESSES: "the driver lists no process of this job: another PID namespace, or none is shown",
    GPU_UNCORRECTED_ERRORS: _FEW,
    GPU_NVLINK_RECOVERIES: _FEW,
    GPU_NVLINK_CRC_PER_S: _FEW,
}


def add_missing_reasons(
    recording: Recording,
    gpus: tuple[Gpu, ...],
    asked: Mapping[GpuMeasure, tuple[Gpu, ...]],
    values: Measured,
) -> None:
    """Adds the reasons for missing measures. `asked`: for each measure, the host's GPUs that should have it."""
    for measure, some in asked.items():
        without = [gpu for gpu in some if (measure, gpu.index) not in values]
        if without:
            why = _why(recording, _MADE_OF[measure], without, gpus)
            values.missing[measure, JOB] = why or _REASONS.get(measure, "too few readings under load")


def _why(recording: Recording, metrics: tuple[str, ...], without: list[Gpu], gpus: tuple[Gpu, ...]) -> str | None:
    """The reason why GPUs do not report a metric. If no GPU of a model reports it, the probe explains it for the first one only."""
    gaps = [gap for gap in recording.gaps if gap.metric in (*metrics, "gpu.*")]
    own = {f"gpu:{gpu.index}" for gpu in without}
    matching = [gap for gap in gaps if gap.scope in {"host", *own}]
    where = {gap.scope for gap in matching} & own
    if not matching:
        kinds = {gpu.name for gpu in without}
        alike = {f"gpu:{gpu.index}" for gpu in gpus if gpu.name in kinds}
        matching = [gap for gap in gaps if gap.scope in alike and gap.metric != "gpu.*"]
        where = own
    if not matching:
        return None
    numbers = ", ".join(str(index) for index in sorted(int(scope.removeprefix("gpu:")) for scope in where))
    return f"GPU {numbers}: {matching[0].reason}" if numbers else matching[0].reason
