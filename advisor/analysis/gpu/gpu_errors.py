"""Errors that the driver reported of the job's GPUs and of their NVLinks, over the whole run."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.gpu.gpu_gaps import tell_missing
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.gpu.gpu_facts import PROGRAMS_XIDS, Gpu
from rn50_advisor.advisor.model.recording import Recording

Values = dict[tuple[str, str], float]


def error_values(recording: Recording, gpus: tuple[Gpu, ...], missing: dict[str, str]) -> Values:
    """On all GPUs of the job; in `missing` why some kinds of errors could not be looked for."""
    values: Values = {}
    whole = Window(recording, recording.meta.started_ns, recording.meta.last_ns)
    used = tuple(gpu for gpu in gpus if gpu.ranks)
    for gpu in used:
        scope = f"gpu:{gpu.index}"
        found: dict[str, float | None] = {
            "gpu.uncorrected_errors": whole.growth("gpu.ecc_uncorrected", scope),
            "gpu.row_remap_pending": _most(recording, "gpu.row_remap_pending", scope),
            "gpu.row_remap_failed": _most(recording, "gpu.row_remap_failed", scope),
            "gpu.recovery_action": _most(recording, "gpu.recovery_action", scope),
            "gpu.lost": _most(recording, "gpu.lost", scope),
            "gpu.hardware_xids": _hardware_xids(whole, gpu),
        }
        known = {name: value for name, value in found.items() if value is not None}
        values.update({(name, scope): value for name, value in known.items()})
        # that the GPU still answers is no error looked for
        covered = whole.covers("gpu.lost", scope)  # which is read as long as anything is
        watched = [name for name in known if known[name] > 0 or (covered and name != "gpu.lost")]
        if watched:
            values["gpu.errors_watched", scope] = float(len(watched))
        if gpu.nvlinks is not None:
            _nvlink_errors(whole, gpu, values)
    _links_due(recording, used, values, missing)
    linked = tuple(gpu for gpu in used if values.get(("gpu.nvlinks_active", f"gpu:{gpu.index}")))
    asked = {
        "gpu.hardware_xids": used,
        "gpu.uncorrected_errors": tuple(gpu for gpu in used if gpu.ecc is not False),
        "gpu.nvlink_recoveries": linked,
        "gpu.nvlink_crc_per_s": linked,
    }
    tell_missing(recording, gpus, asked, values, missing)
    return values


def _hardware_xids(whole: Window, gpu: Gpu) -> float | None:
    """None where nobody watched for them, or not for most of the run."""
    if not gpu.xids and not whole.covers("gpu.xids", f"gpu:{gpu.index}"):
        return None
    return float(sum(xid.code not in PROGRAMS_XIDS for xid in gpu.xids))


def _nvlink_errors(whole: Window, gpu: Gpu, values: Values) -> None:
    scope = f"gpu:{gpu.index}"
    if gpu.nvlinks == 0:
        values["gpu.nvlinks_active", scope] = 0.0
        return
    active = whole.recording.samples.get(("gpu.nvlinks_active", scope))
    found = {
        "gpu.nvlinks_active": float(active.value.min()) if active is not None and active.value.size else None,
        "gpu.nvlink_crc_per_s": whole.rate("gpu.nvlink_crc_errors", scope),
        "gpu.nvlink_recoveries": whole.growth("gpu.nvlink_recoveries", scope),
    }
    values.update({(name, scope): value for name, value in found.items() if value is not None})


def _links_due(recording: Recording, used: tuple[Gpu, ...], values: Values, missing: dict[str, str]) -> None:
    active = {g.index: n for g in used if (n := values.get(("gpu.nvlinks_active", f"gpu:{g.index}"))) is not None}
    most = {index: n for index in active if (n := _most(recording, "gpu.nvlinks_active", f"gpu:{index}")) is not None}
    due = links_due(used, active, most)
    values.update({("gpu.nvlinks_due", f"gpu:{index}"): number for index, number in due.items()})
    unknown = [str(index) for index in active if index not in due]
    if unknown:
        missing["gpu.nvlinks_due"] = (
            f"GPU {', '.join(unknown)}: no NVLink is up, others of the model have some, and whether a bridge is there is not told"
        )


def _most(recording: Recording, metric: str, scope: str) -> float | None:
    series = recording.samples.get((metric, scope))
    return float(series.value.max()) if series is not None and series.value.size else None


# Boards that exist with NVLink alone; the driver names the form of an A100 and older, and of newer ones the form that has none.
_SXM = re.compile(r"SXM|H100 80GB HBM3|H200$|B[23]00$")


# How many NVLinks of each GPU should be up: by its form, by the others of its model in the same machine, and by what was up before.
def links_due(
    gpus: tuple[Gpu, ...], active: Mapping[int, float], most: Mapping[int, float] | None = None
) -> dict[int, float]:
    """By GPU, of those whose links that are up were counted (`active` the fewest, `most` the most in the run); as many where nobody knows.

    A board that takes a bridge and has no link up has none, or a broken one: beside others that have some it is left out.
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
            # some lead to GPUs that this machine was not given: only where none is up it is known that some should be
            due[gpu.index] = float(gpu.nvlinks or 0)
        elif bound or own > 0 or best == 0:
            due[gpu.index] = max(best, own)
    return due
