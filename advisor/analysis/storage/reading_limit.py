"""Finds the storage's upper limit: the rate a control group allows, or the present rate of a saturated disk. More readers only share it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.input.loading import Loading
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.storage_measures import (
    STORAGE_BUSY_SHARE,
    STORAGE_LIMIT_MB_S,
    STORAGE_LIMIT_READS_S,
    STORAGE_QUEUE,
    STORAGE_READ_MB_S,
    STORAGE_READS_S,
    STORAGE_VOLUME_EXCEEDED_SHARE,
)

_NEAR_LIMIT_SHARE = 0.9  # of a limit, or of the time with a request in flight
_QUEUE_LENGTH_MIN = 1.5  # requests in flight; a disk that is always busy with one request may serve several at a time
_HELD_BACK_SHARE_MIN = 0.1  # of the time in which the provider throttles a volume


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Maximum samples/s of all ranks together, and the evidence for it."""

    samples_per_s: float
    why: str
    reached: bool  # the job reads at this rate now; if False, the disk may deliver less than the limit allows


def storage_ceiling(values: Measured, made: Loading, hosts: int = 1) -> Ceiling | None:
    """The lowest known ceiling; None if none is known. Storage measures are those of one host; each host has its own storage."""
    read, per_sample = values.get((STORAGE_READ_MB_S, JOB)), made.read_bytes / max(made.samples, 1.0) / 1e6
    if not read or per_sample <= 0:
        return None
    found = [*_allowed(values, read), *_all_it_has(values, read)]
    if not found:
        return None
    mb_s, why, reached = min(found)
    return Ceiling(hosts * mb_s / per_sample, why, reached)


def _allowed(values: Measured, read_mb_s: float) -> Iterator[tuple[float, str, bool]]:
    """Yields (MB/s, evidence, reached) for the limits of a control group. A limit on reads is converted by the mean size of a read."""
    reads_s = values.get((STORAGE_READS_S, JOB))
    for measure, now in ((STORAGE_LIMIT_MB_S, read_mb_s), (STORAGE_LIMIT_READS_S, reads_s)):
        limit = values.get((measure, JOB))
        if limit and now:
            why = f"{now:.3g} {measure.unit} read of {limit:.3g} that a control group allows"
            yield limit * read_mb_s / now, why, now >= _NEAR_LIMIT_SHARE * limit


def _all_it_has(values: Measured, read_mb_s: float) -> Iterator[tuple[float, str, bool]]:
    busy, held = values.get((STORAGE_BUSY_SHARE, JOB), 0.0), values.get((STORAGE_VOLUME_EXCEEDED_SHARE, JOB), 0.0)
    if busy >= _NEAR_LIMIT_SHARE and values.get((STORAGE_QUEUE, JOB), 0.0) >= _QUEUE_LENGTH_MIN:
        yield read_mb_s, f"{read_mb_s:.3g} MB/s read from a disk that is busy {busy:.0%} of the time", True
    elif held >= _HELD_BACK_SHARE_MIN:
        yield read_mb_s, f"{read_mb_s:.3g} MB/s read from a volume that its provider throttles", True
