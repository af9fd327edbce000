"""What a step that looks like compute may hide: sleep, and waiting for other ranks that nobody timed."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.wording.quantities import duration

# Collectives that nobody timed: so many in a step leave open what takes the time, unless a deep window saw them take less than this share.
_CALLS_A_STEP = 1.0
_COLLECTIVES_SHARE = 0.15  # where COM001 begins
# Of the step, what a training thread may sleep inside the model without a word: most sound jobs were seen to sleep up to a twentieth.
_ASLEEP_SHARE = 0.15
SLEEPS = "The training thread sleeps, and nobody saw for what"
_WAITING = "interpreter.waiting_share"


def unknown_waits(a: Analysis, text: str) -> tuple[str, str] | None:
    """Title and summary where ranks wait for each other, and nobody timed for how long."""
    untimed = _waited_for_others(a) or _untimed_collectives(a)
    return ("How long the ranks wait for each other is not known", f"{text}; {untimed}.") if untimed else None


def asleep(a: Analysis) -> tuple[float, str]:
    """The share of the step in which the model neither computes nor stands in line for a core, and a sentence on it where it is much."""
    sleeping, step = a.by_rank("step.asleep_s"), a.value("step.time_s")
    rank = max(sleeping, key=lambda r: sleeping[r], default=None)
    if rank is None or sleeping[rank] < _ASLEEP_SHARE * step:
        return 0.0, ""
    looked = a.get("interpreter.waiting_share", rank) is not None
    for_what = (
        "not for the interpreter" if looked else f"for what is not known: {a.missing.get(_WAITING, 'nobody looked')}"
    )
    words = (
        f" In {100 * sleeping[rank] / step:.0f} % of the step rank {rank}'s training thread sleeps in them, {for_what}."
    )
    return sleeping[rank] / step, words


def _waited_for_others(a: Analysis) -> str:
    """As below, of an exchange that was timed, where nobody knows what it waits for: ranks that are not in the recording, or the wire."""
    waited, step = min(a.by_rank("comm.exposed_s").values(), default=0.0), a.value("step.time_s")
    if a.has("comm.wire_s") or waited < _COLLECTIVES_SHARE * step:
        return ""
    why = a.missing.get("comm.wire_s", "for the wire or for another rank, was not measured")
    return f"{100 * waited / step:.0f} % of the step is waiting in exchanges with other ranks; {why}"


def _untimed_collectives(a: Analysis) -> str:
    """Why compute may not be what takes the time: collectives that nobody timed are in it, or that nobody saw.

    Untimed: FSDP's, DeepSpeed's on GPUs. Unseen: functional ones, as tensor parallelism calls them, and Horovod's. Else empty: ranks that
    have joined no group exchange nothing.
    """
    calls, joined = max(a.by_rank("collectives.calls").values(), default=0.0), a.get("comm.joined") or 0.0
    unseen = calls < _CALLS_A_STEP
    if (
        max(a.world_size, joined) < 2
        or a.has("comm.wire_s")
        or (unseen and (joined < 2 or a.by_rank("comm.exposed_s")))
    ):
        return ""
    taken, overlap = a.by_rank("kernel.nccl_s"), a.by_rank("kernel.nccl_overlap_share")
    exposed = min((s * (1.0 - overlap.get(rank, 0.0)) for rank, s in taken.items()), default=None)
    if exposed is not None and exposed < _COLLECTIVES_SHARE * a.value("step.time_s"):
        return ""
    timed = max(a.by_rank("collectives.timed_share").values(), default=None)
    if timed is not None and timed < _COLLECTIVES_SHARE:
        return ""
    seen = "" if exposed is None else f", but for {duration(exposed)} of them in the deep window"
    if unseen:
        return (
            f"its {joined:.0f} ranks have joined one process group, and nobody saw what they exchange in a step{seen}"
        )
    return f"{calls:.0f} collectives a step run in it, and how long they hold the ranks was not timed{seen}"
