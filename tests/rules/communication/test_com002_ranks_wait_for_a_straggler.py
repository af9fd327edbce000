"""COM002, ranks wait for a straggler: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis, SpeedChange
from rn50_advisor.advisor.model.findings import Finding
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def com002(
    skew: float = 0.3,
    late: float = 0.9,
    other: float = 0.05,
    *,
    faults: float = 0.0,
    costs: float | None = None,
    held: float = 0.0,
    **more: Any,
) -> Analysis:
    """Rank 1 comes last in `late` of the steps and causes `costs` of the skew; rank 0 comes last in `other` of them.

    For `faults` of these seconds the kernel serves rank 1's page faults, for `held` of each second a quota holds it back.
    """
    own = {0: rank(1.0 - skew), 1: rank()}
    kept = {} if costs is None else {"comm.kept_waiting_s": {0: (1.0 - costs) * skew, 1: costs * skew}}
    values = {"comm.skew_s": skew, **kept, "step.system_s": {0: 0.01, 1: 0.01 + faults}}
    values["quota.throttled_s_per_s"] = {0: 0.0, 1: held}
    return job(own, late={0: other, 1: late}, values=values, **more)


TABLE = Table(
    "COM002",
    com002,
    lines={
        "skew": ({"skew": 0.15}, {"skew": 0.1499}),
        "rotating_skew": ({"skew": 0.25, "late": 0.5, "other": 0.5}, {"skew": 0.249, "late": 0.5, "other": 0.5}),
        "late": (
            {"skew": 0.15, "late": 0.25, "other": 0.3, "costs": 0.9},
            {"skew": 0.15, "late": 0.249, "other": 0.3, "costs": 0.9},
        ),
        "costs": (
            {"skew": 0.15, "late": 0.4, "other": 0.3, "costs": 0.851},
            {"skew": 0.15, "late": 0.4, "other": 0.3, "costs": 0.849},
        ),
    },
    false_alarms={
        "the ordinary spread of two processes": {"skew": 0.05},
        "ranks that share cores take turns": {"skew": 0.2, "late": 0.45, "other": 0.45},
        "one that is the last by chance, and by little": {"skew": 0.16, "late": 0.72, "other": 0.2, "costs": 0.75},
        "a heap that shrinks and grows in each step": {"skew": 0.2, "faults": 0.1},
        "little of the wait is its quota's": {"skew": 0.2, "late": 0.17, "other": 0.3, "costs": 0.9, "held": 0.05},
    },
    severities=(({"skew": 0.30}, "critical"), ({"skew": 0.15}, "high")),
    also_fires={
        "seldom the last, for its quota": {"skew": 0.2, "late": 0.17, "other": 0.3, "costs": 0.9, "held": 0.6},
        "ranks that take turns on a GPU each": {
            "skew": 0.2,
            "late": 0.45,
            "other": 0.45,
            "facts": {"0": {"cuda": {"device": 0}}, "1": {"cuda": {"device": 1}}},
        },
    },
    ranks=(1,),
    best=({"skew": 0.3}, 1 / 0.7),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def late(**values: Any) -> Finding:
    return found(
        "COM002", jobs.job({0: rank(0.7), 1: rank()}, late={0: 0.05, 1: 0.9}, values={"comm.skew_s": 0.3, **values})
    )


@pytest.mark.parametrize(
    ("values", "metrics"),
    [
        ({"step.gc_s": {0: 0.01, 1: 0.25}}, ["step.gc_s"]),
        ({"step.gc_s": {0: 0.25, 1: 0.26}}, []),  # as much on both
        ({"step.gc_s": {0: 0.01, 1: 0.09}}, []),
        ({"quota.throttled_s_per_s": {1: 0.3}}, ["quota.throttled_s_per_s"]),
        ({"step.run_delay_s": {0: 0.0, 1: 0.2}, "step.gc_s": {0: 0.0, 1: 0.1}}, ["step.gc_s", "step.run_delay_s"]),
    ],
)
def test_evidence_names_what_interrupts_the_late_rank(values: dict[str, Any], metrics: list[str]) -> None:
    assert [e.metric for e in late(**values).evidence if e.metric in {*values, *metrics}] == metrics


def test_a_rank_that_became_late_is_late_since_then() -> None:
    change = SpeedChange(120, 30.0, None, 0.7, 1.0, 100, 100, 50.0, 0.2, 1, "forward", 0.3)
    analysis = com002()
    assert found("COM002", analysis).scope.since_step is None
    assert found("COM002", replace(analysis, changes=(change,))).scope.since_step == 120
    assert found("COM002", replace(analysis, changes=(replace(change, rank=0),))).scope.since_step is None


@pytest.mark.parametrize(("share", "in_a_row", "bursts"), [(0.4, 10.0, True), (0.4, 1.7, False), (0.9, 30.0, False)])
def test_a_rank_that_is_late_in_bursts_is_called_so(share: float, in_a_row: float, bursts: bool) -> None:
    analysis = com002(late=share, other=0.02, costs=0.95)
    analysis = replace(analysis, values={**analysis.values, ("comm.late_run_steps", 1): in_a_row})
    assert ("in bursts" in found("COM002", analysis).evidence[1].note) is bursts


def test_the_ranks_of_a_bad_host_are_one_straggler() -> None:
    own = {number: rank(0.4 if number < 4 else 0.6) for number in range(8)}
    late = {number: 0.0 if number < 4 else 0.2 for number in own}
    finding = found("COM002", jobs.job(own, late=late, values={"comm.skew_s": 0.2}))
    assert finding.scope.ranks == (4, 5, 6, 7) and finding.title == "Straggler: ranks 4–7"
    assert "for them" in finding.evidence[1].note
    turns = found("COM002", jobs.job(own, late=dict.fromkeys(own, 0.12), values={"comm.skew_s": 0.3}))
    assert not turns.scope.ranks


def test_com002_names_the_late_rank_and_where_it_loses_the_time() -> None:
    finding = found("COM002", TABLE.job())
    assert "rank 1" in finding.title and "backward" in finding.fixes[0].title
    turns = found("COM002", TABLE.job(skew=0.3, late=0.5, other=0.5))
    assert turns.scope.ranks == () and "Alternating" in turns.title
    assert turns.confidence < finding.confidence


@pytest.mark.parametrize(
    ("scatter", "looks", "ranks", "named"),
    [
        pytest.param(0.3, 20, 2, True, id="sizes that scatter as the ranks do"),
        pytest.param(0.05, 20, 2, False, id="batches of much the same size"),
        pytest.param(0.3, 4, 2, False, id="too few batches were seen"),
        pytest.param(0.3, 20, 1, False, id="the batches of one rank are not known"),
    ],
)
def test_ranks_in_turn_by_their_batches_get_batches_of_similar_size(
    scatter: float, looks: int, ranks: int, named: bool
) -> None:
    sizes = {"looks": looks, "bytes": looks * 1000, "squares": looks * 1e6 * (1 + scatter**2)}
    facts = {str(n): {"batch_sizes": sizes} for n in range(ranks)}
    finding = found("COM002", TABLE.job(skew=0.3, late=0.5, other=0.5, facts=facts))
    assert ("uneven batch sizes" in finding.title) == named
    assert ("distribute batches of similar size" in finding.fixes[0].title) == named
    assert [e.value for e in finding.evidence if e.metric == "batch size"] == (
        [pytest.approx(scatter)] if named else []
    )
    late = found("COM002", TABLE.job(facts=facts))
    assert "of different size" not in late.title
    assert finding.saving is not None and finding.seconds_per_step == pytest.approx(0.15 if named else 0.3)
    assert finding.saving.speedup[1] == pytest.approx(1 / (0.85 if named else 0.7)), "the work remains, and is shared"


def test_com002_shows_the_line_it_judged_by() -> None:
    assert found("COM002", TABLE.job(skew=0.3)).evidence[0].threshold == pytest.approx(0.15)
    assert found("COM002", TABLE.job(skew=0.3, late=0.5, other=0.5)).evidence[0].threshold == pytest.approx(0.25)
