"""Finds waits that may hide in steps that look like compute: sleep, and untimed waiting for other ranks."""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.comm_measures import (
    COLLECTIVES_CALLS,
    COLLECTIVES_TIMED_SHARE,
    COMM_EXPOSED_S,
    COMM_JOINED,
    COMM_WIRE_S,
)
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_NCCL_OVERLAP_SHARE, KERNEL_NCCL_S
from rn50_advisor.advisor.model.measures.step_measures import INTERPRETER_WAITING_SHARE, STEP_ASLEEP_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration

# With this many untimed collectives in a step the bottleneck is unknown, unless they were measured to take less than this share.
_CALLS_A_STEP_MIN = 1.0
_COLLECTIVES_SHARE = 0.15  # the limit of COM001
# Share of the step that a training thread may sleep inside the model: most healthy jobs sleep up to 5 %.
_ASLEEP_SHARE = 0.15
SLEEPS = "Training thread sleeps for an unobserved reason"


def unknown_waits(a: Analysis, text: str) -> tuple[str, str] | None:
    """Returns title and summary if ranks wait for each other for an unmeasured time; else None."""
    untimed = _in_graphs(a) or _waited_for_others(a) or _untimed_collectives(a)
    return ("Wait between ranks not measured", f"{text}; {untimed}.") if untimed else None


def asleep(a: Analysis) -> tuple[float, str]:
    """Returns the share of the step in which the training thread sleeps inside the model, and a sentence on it; (0, "") if it is small."""
    sleeping, step = a.by_rank(STEP_ASLEEP_S), a.value(STEP_TIME_S)
    rank = max(sleeping, key=lambda r: sleeping[r], default=None)
    if rank is None or sleeping[rank] < _ASLEEP_SHARE * step:
        return 0.0, ""
    sampled = a.get(INTERPRETER_WAITING_SHARE, rank) is not None
    for_what = (
        "not for the interpreter"
        if sampled
        else f"the reason is not known: {a.missing.get(INTERPRETER_WAITING_SHARE, 'it was not sampled')}"
    )
    words = (
        f" In {100 * sleeping[rank] / step:.0f} % of the step rank {rank}'s training thread sleeps in them; {for_what}."
    )
    return sleeping[rank] / step, words


def _waited_for_others(a: Analysis) -> str:
    """Describes the wait in timed exchanges if its cause is unknown, other ranks or the network; empty if known or small."""
    waited, step = min(a.by_rank(COMM_EXPOSED_S).values(), default=0.0), a.value(STEP_TIME_S)
    if a.has(COMM_WIRE_S) or waited < _COLLECTIVES_SHARE * step:
        return ""
    why = a.missing.get(COMM_WIRE_S, "whether for the network or for another rank was not measured")
    return f"{100 * waited / step:.0f} % of the step is waiting in exchanges with other ranks; {why}"


def _in_graphs(a: Analysis) -> str:
    """Describes ranks that replay whole steps as CUDA graphs, whose exchanges no event can be put around; empty for other jobs."""
    replayed = any(facts.get("replayed_steps") for facts in a.rank_facts.values())
    if not replayed or a.world_size < 2:
        return ""
    return (
        "its steps are replayed as CUDA graphs, and how long the ranks wait for each other within them cannot be timed"
    )


def _untimed_collectives(a: Analysis) -> str:
    """Describes collectives inside the compute phases that were not timed or not observed; empty if there are none.

    Untimed: those of FSDP, and of DeepSpeed on GPUs. Not observed: functional collectives, as in tensor parallelism, and Horovod's. Ranks
    that have joined no group exchange nothing.
    """
    calls, joined = max(a.by_rank(COLLECTIVES_CALLS).values(), default=0.0), a.get(COMM_JOINED) or 0.0
    unobserved = calls < _CALLS_A_STEP_MIN
    if (
        max(a.world_size, joined) < 2
        or a.has(COMM_WIRE_S)
        or (unobserved and (joined < 2 or a.by_rank(COMM_EXPOSED_S)))
    ):
        return ""
    taken, overlap = a.by_rank(KERNEL_NCCL_S), a.by_rank(KERNEL_NCCL_OVERLAP_SHARE)
    exposed = min((s * (1.0 - overlap.get(rank, 0.0)) for rank, s in taken.items()), default=None)
    if exposed is not None and exposed < _COLLECTIVES_SHARE * a.value(STEP_TIME_S):
        return ""
    timed = max(a.by_rank(COLLECTIVES_TIMED_SHARE).values(), default=None)
    if timed is not None and timed < _COLLECTIVES_SHARE:
        return ""
    timed_part = "" if exposed is None else f", but for {duration(exposed)} of them in the profiler's window"
    if unobserved:
        return f"its {joined:.0f} ranks have joined one process group, and what they exchange in a step was not observed{timed_part}"
    return f"{calls:.0f} collectives a step run in it, and how long they block the ranks was not timed{timed_part}"
