"""A straggler and a slow network, alone and together, on two ranks and four: pairs that the advisor must distinguish reliably.

They run only on request: `python -m samples.faults --only 'among-*' --repeat 5`.
"""

from __future__ import annotations

from typing import Any

from samples.faults.fixtures import CpuQuota, SlowLoopback
from samples.faults.scenario import Fixture, Job, Scenario, fault

# Width of a square layer of 4-byte parameters: large enough for the exchange to matter, also beside a slow rank. With 1 MB at 1 Gb/s only
# a tenth of the step is exposed.
BALLAST = {"1gbit": 1024, "300mbit": 512}
LATE = 120
RULES = {"data": "DAT008", "computing": "CMP007", "quota": "CPU001", "collections": "CPU006", "late-data": "DAT008"}


def straggler(ranks: int, *arguments: str, steps: int = 80) -> Job:
    # four ranks on two cores: waiting ranks leave the cores to the slow one
    size = () if ranks == 2 else ("--batch=8", "--width=8")
    slow = f"--slow-rank={ranks // 2}"
    return Job(
        "faults/jobs/ranks/straggler.py", (slow, *size, f"--steps={steps}", *arguments), ranks=ranks, start="one by one"
    )


def held_up(ranks: int, how: str, *arguments: str) -> tuple[Job, tuple[Fixture, ...]]:
    """Returns a job in which rank `ranks // 2` is slow in this way, and the fixtures it needs."""
    slower = ranks // 2  # must exceed the chance differences of ranks that share cores
    if how == "collections":
        records = ("--records=200000", "--collect-every=1", f"--collect-rank={ranks // 2}", "--steps=45", "--out={out}")
        return Job("faults/jobs/loop/between_steps.py", records, ranks=ranks, start="one by one"), ()
    if how == "quota":
        job = straggler(ranks, "--group={group}", *arguments)
        return job, (CpuQuota(0.35 / slower, everybody=False),)
    given = {
        "data": (f"--slow-data={3 * slower}",),
        "computing": (f"--slow-compute={40 * slower}",),
        "late-data": (f"--slow-data={3 * slower}", f"--from-step={LATE}"),
    }[how]
    return straggler(ranks, *given, *arguments, steps=2 * LATE + 40 if how == "late-data" else 80), ()


def slow_rank(ranks: int, how: str) -> Scenario:
    job, fixtures = held_up(ranks, how)
    late: dict[str, Any] = {"also": ("RUN003",), "onset_step": LATE} if how == "late-data" else {}
    return fault(f"among-{ranks}-slow-{how}", RULES[how], job, *fixtures, ranks=(ranks // 2,), suite="all", **late)


def slow_wire(ranks: int, rate: str) -> Scenario:
    job = straggler(ranks, f"--ballast={BALLAST[rate]}")
    return fault(f"among-{ranks}-wire-of-{rate}", "COM001", job, SlowLoopback(rate), suite="all")


def both(ranks: int, how: str, rate: str) -> Scenario:
    job, fixtures = held_up(ranks, how, f"--ballast={BALLAST[rate]}")
    pair = (RULES[how], "COM001")
    return fault(
        f"among-{ranks}-slow-{how}-and-wire-of-{rate}",
        pair,
        job,
        *fixtures,
        SlowLoopback(rate),
        noted=pair,
        suite="all",
        note="which of the two costs more depends on the machine; both have to be reported",
    )


SCENARIOS = (
    *(slow_rank(ranks, how) for ranks in (2, 4) for how in RULES),
    *(slow_wire(ranks, rate) for ranks in (2, 4) for rate in ("1gbit", "300mbit")),
    *(both(2, how, rate) for how in ("data", "computing", "quota") for rate in ("1gbit", "300mbit")),
    *(both(4, how, "1gbit") for how in ("data", "computing")),
)
