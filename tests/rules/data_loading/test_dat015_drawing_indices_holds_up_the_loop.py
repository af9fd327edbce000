"""DAT015, drawing indices holds up the loop: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Where
from rule_cases import LINE, job, loader, on_both_ranks, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def dat015(index: float = 0.2, *, steps: float = 10.0, length: int | None = 80, **more: Any) -> Analysis:
    """An analysis with `index` seconds per step spent drawing the indices of its batch."""
    values: dict[str, Any] = {"step.index_s": on_both_ranks(index), "epoch.steps": on_both_ranks(steps)}
    loaders = tuple(loader(n, 2, dataset={"length": length}) for n in (0, 1))
    own = {n: rank(input_wait=index) for n in (0, 1)}
    return job(own, **{"values": values, "loaders": loaders, **more})


TABLE = Table(
    "DAT015",
    dat015,
    lines={"index": ({"index": 0.05}, {"index": 0.0499})},
    false_alarms={"torch's own samplers": {"index": 0.001}},
    severities=(({"index": 0.4}, "critical"), ({"index": 0.2}, "high"), ({"index": 0.1}, "medium")),
    where=LINE,
    best=({"index": 0.2}, warm(1 / 0.8)),
    also_fires={"an iterator for each step": {"steps": 1.0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_line_is_that_of_the_jobs_sampler() -> None:
    sampler = HotLine("/job/samplers.py", 47, "PairSampler.__iter__", "", 180, 0.45, io=False)
    finding = found("DAT015", dat015(drawing_lines=(sampler,)))
    assert finding.fixes[0].where == Where("/job/samplers.py", 47)
