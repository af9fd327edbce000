"""Jobs that do not end as they should: they hang, or one of their ranks dies."""

from __future__ import annotations

from samples.faults.fixtures import MemoryLimit
from samples.faults.scenario import Job, Scenario, Truth

AT = 40


def failing(what: str) -> Job:
    return Job("faults/jobs/failing.py", (f"--what={what}", f"--at={AT}"), ranks=2)


SCENARIOS = (
    Scenario(
        name="hang-in-user-code",
        family="endings",
        job=failing("hang"),
        truth=Truth(roots=("RUN001",), ranks=(1,), line="signal.pause()", says="stuck_in_user_code"),
        strength="clear",
        ending="hangs",
        waits=True,
        onset_step=AT,
        fast=True,
    ),
    Scenario(
        name="hang-in-a-collective-of-one",
        family="endings",
        job=failing("collective"),
        truth=Truth(roots=("RUN001",)),
        strength="clear",
        ending="hangs",
        waits=True,
        onset_step=AT,
        note="the first rank averages its loss, the second goes on to the next step: both wait in a collective",
    ),
    Scenario(
        name="hang-in-a-collective-that-one-skips",
        family="endings",
        job=failing("skips"),
        truth=Truth(roots=("RUN001",), ranks=(1,), says="all_reduce"),
        strength="clear",
        ending="hangs",
        waits=True,
        onset_step=AT,
        note="the first rank waits in an average that the second has left out; the second waits for its gradients",
    ),
    Scenario(
        name="hang-after-uneven-data",
        family="endings",
        job=failing("uneven"),
        truth=Truth(roots=("RUN001",)),
        strength="clear",
        ending="hangs",
        waits=True,
        onset_step=AT,
        note="the second rank has no more batches and waits at the end; the first waits for its gradients",
    ),
    Scenario(
        name="rank-that-leaves-early",
        family="endings",
        job=failing("leave"),
        truth=Truth(roots=("RUN002",), ranks=(1,), says="left while other ranks still trained"),
        strength="clear",
        ending="fails",
        onset_step=AT,
        note="the second rank ends in order, with code 0; the first loses its peer and fails",
    ),
    Scenario(
        name="rank-stopped-in-its-backward",
        family="endings",
        job=failing("stop"),
        truth=Truth(roots=("RUN001",), ranks=(1,), says="stopped by a signal"),
        strength="clear",
        ending="hangs",
        waits=True,
        onset_step=AT,
        note="where the other rank waits for its gradients too",
    ),
    Scenario(
        name="rank-that-stands-a-while",
        family="endings",
        job=failing("pauses"),
        truth=Truth(never=("RUN001", "RUN002")),
        strength="just below",
        waits=True,
        onset_step=AT,
        note="it stands in its own line for 18 s, and goes on",
    ),
    Scenario(
        name="helper-that-is-killed",
        family="endings",
        job=failing("helper"),
        truth=Truth(),
        strength="none",
        note="a process of the second rank's that trains nothing",
    ),
    Scenario(
        name="killed-rank",
        family="endings",
        job=failing("kill"),
        truth=Truth(roots=("RUN002",), ranks=(1,), says="SIGKILL"),
        strength="clear",
        ending="fails",
        onset_step=AT,
        fast=True,
    ),
    Scenario(
        name="rank-that-raises",
        family="endings",
        job=failing("raise"),
        truth=Truth(roots=("RUN002",), ranks=(1,), says="is damaged"),
        strength="clear",
        ending="fails",
        onset_step=AT,
    ),
    Scenario(
        name="rank-out-of-memory",
        family="endings",
        job=failing("memory"),
        fixtures=(MemoryLimit(1400),),
        truth=Truth(roots=("RUN002", "MEM002"), ranks=(1,), also=("LOP004",), says="OOM"),
        strength="clear",
        ending="fails",
        onset_step=AT,
        note="the kernel killed it, because its memory crept up to the limit: event and cause are both true",
    ),
)
