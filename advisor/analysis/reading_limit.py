"""Whether the storage gives all it has: then more readers only share it."""

from __future__ import annotations

from collections.abc import Callable

from advisor.analysis.loading import Loading

_NEAR = 0.9  # of what a limit allows, or of the time with a request in flight
_QUEUED = 1.5  # requests in flight: a disk that is always busy with one may take more at a time
_HELD_BACK = 0.1  # of the time: a provider's volume that is held back so often


def storage_ceiling(of: Callable[[str], float | None], made: Loading) -> tuple[float | None, str]:
    """(samples/s of all ranks at which the storage gives no more, why that is known); None where it is not known to be there.

    `of` gives a value of the whole job.
    """
    read, per_sample = of("storage.read_mb_s"), made.read_bytes / max(made.samples, 1.0) / 1e6
    if not read or per_sample <= 0:
        return None, ""
    limit, busy = of("storage.limit_mb_s"), of("storage.busy_share") or 0.0
    if limit and read >= _NEAR * limit:
        return limit / per_sample, f"{read:.3g} MB/s read of {limit:.3g} that a control group allows"
    if busy >= _NEAR and (of("storage.queue") or 0.0) >= _QUEUED:
        return read / per_sample, f"{read:.3g} MB/s read from a disk that is busy {busy:.0%} of the time"
    if (of("storage.volume_exceeded_share") or 0.0) >= _HELD_BACK:
        return read / per_sample, f"{read:.3g} MB/s read from a volume that its provider holds back"
    return None, ""
