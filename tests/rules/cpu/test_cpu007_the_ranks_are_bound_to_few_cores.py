"""CPU007, the ranks are bound to few cores: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_table import Table, waits, warm
from table_checks import Check, checks


def cpu007(
    delay: float = 0.3,
    bound: float = 1.0,
    free: float = 12.0,
    *,
    in_fetch: float = 0.0,
    wait: float = 0.0,
    allowed: float = 16.0,
    given: float | None = None,
    **more: Any,
) -> Analysis:
    """Ranks wait so long for the cores that they are bound to; their workers for `in_fetch` of making a batch."""
    values: dict[str, Any] = {
        "step.run_delay_s": {0: delay, 1: delay},
        "cpu.affinity_cores": bound,
        "cpu.allowed_cores": allowed,
        "cpu.host_busy_cores": allowed - free,
        "fetch.delay_share": {0: in_fetch, 1: in_fetch},
    }
    values |= {} if given is None else {"cpu.given_cores": given}
    facts = {str(number): {"cpus_allowed": list(range(int(bound)))} for number in (0, 1)}
    own = {number: rank(input_wait=wait) for number in (0, 1)}
    return job(own, **{"values": values, "facts": facts, **more})


TABLE = Table(
    "CPU007",
    cpu007,
    lines={
        "beyond": ({"bound": 15.0}, {"bound": 15.01}),
        "free": ({"free": 0.5}, {"free": 0.49}),
        "in_fetch": ({"delay": 0.0, "wait": 0.6, "in_fetch": 0.2}, {"delay": 0.0, "wait": 0.6, "in_fetch": 0.1999}),
        "delay": ({"delay": 0.10}, {"delay": 0.0999}),
    },
    false_alarms={
        "each has a core of its own": {"delay": 0.01},
        "all cores are busy": {"free": 0.2},
        "a container that has no more": {"allowed": 1.0, "free": 0.5},
    },
    severities=waits("delay"),
    best=({"delay": 0.3}, warm(1 / 0.7)),
    also_fires={
        "workers on the core of their rank": {"delay": 0.02, "in_fetch": 0.8, "wait": 0.5},
        "a job that binds itself": {"allowed": 1.0, "free": 0.0, "given": 16.0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
