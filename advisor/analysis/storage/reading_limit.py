"""What the storage gives at most: what a control group allows, or what it gives now if that is all it has. More readers only share it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.input.loading import Loading

_NEAR = 0.9  # of what a limit allows, or of the time with a request in flight
_QUEUED = 1.5  # requests in flight: a disk that is always busy with one may take more at a time
_HELD_BACK = 0.1  # of the time: a provider's volume that is held back so often


@dataclass(frozen=True, slots=True)
class Ceiling:
    """Samples/s of all ranks together, and why that is known."""

    samples_per_s: float
    why: str
    reached: (
        bool  # the job reads that much now; where it does not, the disk may have less to give than it is allowed to
    )


def storage_ceiling(of: Callable[[str], float | None], made: Loading, hosts: int = 1) -> Ceiling | None:
    """The lowest that is known; None where none is. `of` gives a value of the whole job, of storage it is one host's; each has its own."""
    read, per_sample = of("storage.read_mb_s"), made.read_bytes / max(made.samples, 1.0) / 1e6
    if not read or per_sample <= 0:
        return None
    found = [*_allowed(of, read), *_all_it_has(of, read)]
    if not found:
        return None
    mb_s, why, reached = min(found)
    return Ceiling(hosts * mb_s / per_sample, why, reached)


def _allowed(of: Callable[[str], float | None], read_mb_s: float) -> Iterator[tuple[float, str, bool]]:
    """MB/s at the limits of a control group; a number of reads is worth what one of them brings."""
    for name, unit, now in (("mb_s", "MB/s", read_mb_s), ("reads_s", "reads/s", of("storage.reads_s"))):
        limit = of(f"storage.limit_{name}")
        if limit and now:
            why = f"{now:.3g} {unit} read of {limit:.3g} that a control group allows"
            yield limit * read_mb_s / now, why, now >= _NEAR * limit


def _all_it_has(of: Callable[[str], float | None], read_mb_s: float) -> Iterator[tuple[float, str, bool]]:
    busy, held = of("storage.busy_share") or 0.0, of("storage.volume_exceeded_share") or 0.0
    if busy >= _NEAR and (of("storage.queue") or 0.0) >= _QUEUED:
        yield read_mb_s, f"{read_mb_s:.3g} MB/s read from a disk that is busy {busy:.0%} of the time", True
    elif held >= _HELD_BACK:
        yield read_mb_s, f"{read_mb_s:.3g} MB/s read from a volume that its provider holds back", True
