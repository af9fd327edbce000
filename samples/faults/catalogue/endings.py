"""Jobs that do not end as they should: they hang, or one of their ranks dies."""

from __future__ import annotations

from samples.faults.catalogue.healthy import healthy
from samples.faults.fixtures import MemoryLimit
from samples.faults.scenario import Job, fault

AT = 40


def failing(what: str) -> Job:
    return Job("faults/jobs/course/failing.py", (f"--what={what}", f"--at={AT}"), ranks=2)


SCENARIOS = (
    fault(
        "hang-in-user-code",
        "RUN001",
        failing("hang"),
        ranks=(1,),
        line="signal.pause()",
        says="stuck_in_user_code",
        ending="hangs",
        onset_step=AT,
        suite="fast",
    ),
    fault(
        "hang-in-the-first-step",
        "RUN001",
        failing("first"),
        ranks=(1,),
        line="signal.pause()",
        says="stuck_in_user_code",
        ending="hangs",
        onset_step=1,
        note="the second rank stops before its first forward pass; the first waits for its gradients and has made no step either",
    ),
    fault(
        "hang-that-computes",
        "RUN001",
        failing("spin"),
        ranks=(1,),
        line="found",
        says="computes in find_nothing",
        ending="hangs",
        onset_step=AT,
        suite="all",
        note="the second rank computes for ever in a line of its own, on a core: a loop whose end never comes",
    ),
    fault(
        "hang-in-a-collective-of-one",
        "RUN001",
        failing("collective"),
        ending="hangs",
        onset_step=AT,
        note="the first rank averages its loss, the second goes on to the next step: both wait in a collective",
    ),
    fault(
        "hang-in-a-collective-that-one-skips",
        "RUN001",
        failing("skips"),
        ranks=(1,),
        says="all_reduce",
        ending="hangs",
        onset_step=AT,
        note="the first rank waits in an average that the second has left out; the second waits for its gradients",
    ),
    fault(
        "hang-after-uneven-data",
        "RUN001",
        failing("uneven"),
        ending="hangs",
        onset_step=AT,
        note="the second rank has no more batches and waits at the end; the first waits for its gradients",
    ),
    fault(
        "rank-that-leaves-early",
        "RUN002",
        failing("leave"),
        ranks=(1,),
        says="left while other ranks still trained",
        ending="fails",
        onset_step=AT,
        note="the second rank ends in order, with code 0; the first loses its peer and fails",
    ),
    fault(
        "rank-stopped-in-its-backward",
        "RUN001",
        failing("stop"),
        ranks=(1,),
        says="stopped by a signal",
        ending="hangs",
        onset_step=AT,
        note="where the other rank waits for its gradients too",
    ),
    fault(
        "rank-that-stands-a-while",
        ("RUN001", "RUN002"),
        failing("pauses"),
        strength="just below",
        onset_step=AT,
        note="it waits in its own line for 18 s, and goes on",
    ),
    healthy("helper-that-is-killed", failing("helper"), note="a process of the second rank's that trains nothing"),
    fault(
        "killed-rank",
        "RUN002",
        failing("kill"),
        ranks=(1,),
        says="SIGKILL",
        ending="fails",
        onset_step=AT,
        suite="fast",
    ),
    fault("rank-that-raises", "RUN002", failing("raise"), ranks=(1,), says="is damaged", ending="fails", onset_step=AT),
    fault(
        "rank-out-of-memory",
        ("RUN002", "MEM002"),
        failing("memory"),
        MemoryLimit(1400),
        ranks=(1,),
        also=("LOP004",),
        says="OOM",
        ending="fails",
        onset_step=AT,
        note="the kernel killed it, because its memory crept up to the limit: event and cause are both true",
    ),
)
