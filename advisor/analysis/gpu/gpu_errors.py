"""Errors that the driver reported for the job's GPUs and their NVLinks over the whole run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.gpu.gpu_gaps import add_missing_reasons
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_ERRORS_WATCHED,
    GPU_HARDWARE_XIDS,
    GPU_LOST,
    GPU_NVLINK_CRC_PER_S,
    GPU_NVLINK_RECOVERIES,
    GPU_NVLINKS_ACTIVE,
    GPU_NVLINKS_DUE,
    GPU_RECOVERY_ACTION,
    GPU_ROW_REMAP_FAILED,
    GPU_ROW_REMAP_PENDING,
    GPU_UNCORRECTED_ERRORS,
)
from rn50_advisor.advisor.model.measures.measure import JOB, GpuMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording


def error_values(recording: Recording, gpus: tuple[Gpu, ...]) -> Measured:
    """Error measures of all GPUs of the job."""
    values = Measured()
    whole = Window(recording, recording.meta.started_ns, recording.meta.last_ns)
    used = tuple(gpu for gpu in gpus if gpu.ranks)
    for gpu in used:
        scope = f"gpu:{gpu.index}"
        found: dict[GpuMeasure, float | None] = {
            GPU_UNCORRECTED_ERRORS: whole.growth("gpu.ecc_uncorrected", scope),
            GPU_ROW_REMAP_PENDING: _highest(recording, "gpu.row_remap_pending", scope),
            GPU_ROW_REMAP_FAILED: _highest(recording, "gpu.row_remap_failed", scope),
            GPU_RECOVERY_ACTION: _highest(recording, "gpu.recovery_action", scope),
            GPU_LOST: _highest(recording, "gpu.lost", scope),
            GPU_HARDWARE_XIDS: _hardware_xids(whole, gpu),
        }
        known = {measure: value for measure, value in found.items() if value is not None}
        values.update({(measure, gpu.index): value for measure, value in known.items()})
        # gpu.lost = 0 only means that the GPU answers: it does not count as a watched error
        covered = whole.covers("gpu.lost", scope)  # read as long as any other metric is
        watched = [measure for measure in known if known[measure] > 0 or (covered and measure != GPU_LOST)]
        if watched:
            values[GPU_ERRORS_WATCHED, gpu.index] = float(len(watched))
        if gpu.nvlinks is not None:
            _nvlink_errors(whole, gpu, values)
    _links_due(recording, used, values)
    linked = tuple(gpu for gpu in used if values.get((GPU_NVLINKS_ACTIVE, gpu.index)))
    asked = {
        GPU_HARDWARE_XIDS: used,
        GPU_UNCORRECTED_ERRORS: tuple(gpu for gpu in used if gpu.ecc is not False),
        GPU_NVLINK_RECOVERIES: linked,
        GPU_NVLINK_CRC_PER_S: linked,
    }
    add_missing_reasons(recording, gpus, asked, values)
    return values


def _hardware_xids(whole: Window, gpu: Gpu) -> float | None:
    """Xid errors that point to hardware; None if they were not watched for most of the run."""
    if not gpu.xids and not whole.covers("gpu.xids", f"gpu:{gpu.index}"):
        return None
    return float(sum(xid.code not in PROGRAMS_XIDS for xid in gpu.xids))


def _nvlink_errors(whole: Window, gpu: Gpu, values: Measured) -> None:
    scope = f"gpu:{gpu.index}"
    if gpu.nvlinks == 0:
        values[GPU_NVLINKS_ACTIVE, gpu.index] = 0.0
        return
    active = whole.recording.samples.get(("gpu.nvlinks_active", scope))
    found = {
        GPU_NVLINKS_ACTIVE: float(active.value.min()) if active is not None and active.value.size else None,
        GPU_NVLINK_CRC_PER_S: whole.rate("gpu.nvlink_crc_errors", scope),
        GPU_NVLINK_RECOVERIES: whole.growth("gpu.nvlink_recoveries", scope),
    }
    values.update({(measure, gpu.index): value for measure, value in found.items() if value is not None})


def _links_due(recording: Recording, used: tuple[Gpu, ...], values: Measured) -> None:
    active = {g.index: n for g in used if (n := values.get((GPU_NVLINKS_ACTIVE, g.index))) is not None}
    most = {
        index: n for index in active if (n := _highest(recording, "gpu.nvlinks_active", f"gpu:{index}")) is not None
    }
    due = links_due(used, active, most)
    values.update({(GPU_NVLINKS_DUE, index): number for index, number in due.items()})
    unknown = [str(index) for index in active if index not in due]
    if unknown:
        values.missing[GPU_NVLINKS_DUE, JOB] = (
            f"GPU {', '.join(unknown)}: no NVLink is up here, some are on others of the model; whether a bridge is installed is unknown"
        )


def _highest(recording: Recording, metric: str, scope: str) -> float | None:
    series = recording.samples.get((metric, scope))
    return float(series.value.max()) if series is not None and series.value.size else None


# GPUs that always have NVLink. Up to the A100 the driver's names include the form factor; newer names include only the one without NVLink.
_SXM = re.compile(r"SXM|H100 80GB HBM3|H200$|B[23]00$")


# The number of NVLinks that should be up, from the GPU's form factor, other GPUs of its model in the same machine, and earlier readings.
def links_due(
    gpus: tuple[Gpu, ...], active: Mapping[int, float], most: Mapping[int, float] | None = None
) -> dict[int, float]:
    """Links that should be up on each GPU. `active` and `most`: the fewest and the most links that were up.

    A GPU is expected to have as many links as its peers, or all of its links if they lead to a switch. A GPU that needs a bridge and never
    had a link up has no bridge or a broken one. It is left out if its peers have links.
    """
    due = {}
    for gpu in gpus:
        if gpu.index not in active:
            continue
        alike = [other for other in gpus if other.is_like(gpu)]
        best = max(active.get(other.index, 0.0) for other in alike)
        own = max(active[gpu.index], (most or {}).get(gpu.index, 0.0))
        bound = bool(_SXM.search(gpu.name))
        if gpu.nvlink_switched and gpu.nvlinks:
            due[gpu.index] = float(gpu.nvlinks)
        elif bound and best == 0 and len(alike) > 1:
            # Some links may lead to GPUs that are not visible here. Only if none is up on any peer must the link count itself be used.
            due[gpu.index] = float(gpu.nvlinks or 0)
        elif bound or own > 0 or best == 0:
            due[gpu.index] = max(best, own)
    return due
