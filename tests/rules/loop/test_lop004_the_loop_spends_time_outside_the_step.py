"""LOP004, the loop spends time outside the step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "LOP004",
    jobs.lop004,
    lines={
        "gap": ({"spent": 0.05}, {"spent": 0.0499}),
        "seconds": ({"spent": 0.0002, "step_s": 0.001}, {"spent": 0.000199, "step_s": 0.001}),
        "output": ({"output": 0.499}, {"output": 0.5}),
    },
    false_alarms={
        "a few metrics": {"spent": 0.03},
        "schedule and accuracy of a step of a millisecond": {"spent": 0.00015, "step_s": 0.001},
        "output, which is LOP002's": {"output": 0.9},
    },
    severities=waits("spent"),
    where=Where(SCRIPT, 93),
    best=({"spent": 0.2}, warm(1 / 0.8)),
    also_fires={"no stack samples could be had": {"output": None, "seen": False}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop004_without_stack_samples_is_less_sure() -> None:
    assert "smooth_weights" in found("LOP004", TABLE.job()).fixes[0].title
    loose = jobs.lop004()
    lines = tuple(replace(line, function="<module>") for line in loose.hot_lines)
    assert found("LOP004", replace(loose, hot_lines=lines)).fixes[0].title.startswith("move this line out")
    blind = found("LOP004", TABLE.job(output=None, seen=False))
    assert blind.fixes[0].where is None and blind.confidence < found("LOP004", TABLE.job()).confidence


@pytest.mark.parametrize(
    ("others", "ranks", "title"), [(0.05, (0,), "on rank 0"), (0.07, (), "steps"), (0.2, (), "steps")]
)
def test_time_between_steps_is_that_of_the_ranks_that_spend_it(
    others: float, ranks: tuple[int, ...], title: str
) -> None:
    given = jobs.job({0: rank(gap=0.2), 1: rank(gap=others), 2: rank(gap=others)}, values={"gap.io_share": 0.1})
    finding = found("LOP004", given)
    assert finding.scope.ranks == ranks and finding.title.endswith(title)
    model, saving = given.model, finding.saving
    assert model is not None and saving is not None
    after_s = model.step_if({(number, "gap"): 0.0 for number in model.own})
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


@pytest.mark.parametrize(("others", "hosts", "computes_s"), [(0.0, 1, 0.6), (0.0, 2, 0.7), (0.2, 1, 0.7)])
def test_ranks_wait_for_cores_by_turns_once_none_works_while_the_others_wait(
    others: float, hosts: int, computes_s: float
) -> None:
    own = {0: rank(0.7, gap=0.2), 1: rank(0.7 + others, gap=others)}
    values = {"gap.io_share": 0.1, "step.run_delay_s": {0: 0.0, 1: 0.2}}
    given = jobs.job(own, values=values)
    assert given.model is not None
    model = replace(given.model, hosts=hosts)
    saving = found("LOP004", replace(given, model=model)).saving
    assert saving is not None
    # rank 0 computes 0.5 s and rank 1 0.7 s, of which it waits 0.2 s for a core; a wire of nothing, and no less jitter than work
    after_s = model.step_if({(n, "gap"): 0.0 for n in own}) * computes_s / 0.7
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))
