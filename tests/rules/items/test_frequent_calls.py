"""The finding that items spend their time in one call: what goes, and what is left at worst."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from input_rule_cases import in_a_call
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine
from rn50_advisor.advisor.model.measures.input_measures import LOADER_TABLE_ERROR, LOADER_TABLE_SHARE
from rn50_advisor.rules.items import frequent_calls
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rule_cases import loader, on_both_ranks, rank

CALL = FrequentCall("pandas", SampleLine("Table.__getitem__", "/job/data.py", 9, 6, 8))
THRESHOLDS = {name: threshold.value for name, threshold in FREQUENT.items()}


def spending(share: float | None, error: float = 0.0, wait: float = 0.4) -> Analysis:
    values = {
        "fetch.wall_s": on_both_ranks(1.0),
        "loader.workers": on_both_ranks(1),
        "loader.busy_share": on_both_ranks(1.0),
        **({} if share is None else {"loader.table_share": share, "loader.table_error": error}),
    }
    return jobs.job(
        {n: rank(input_wait=wait) for n in (0, 1)}, values=values, loaders=(loader(0, 1), loader(1, 1)), table=CALL
    )


def judged(a: Analysis, left: float = 0.0) -> Finding | Clear | NotMeasured:
    return finding_of(
        a,
        THRESHOLDS,
        "DAT019",
        a.table,
        measures=(LOADER_TABLE_SHARE, LOADER_TABLE_ERROR),
        title="title",
        where="inside pandas",
        fix=("fix", "change"),
        basis="basis",
        left=left,
    )


def test_the_error_of_the_share_widens_the_gain() -> None:
    exact, rough = judged(spending(0.5)), judged(spending(0.5, 0.1))
    assert isinstance(exact, Finding) and isinstance(rough, Finding) and exact.saving and rough.saving
    assert rough.saving.speedup[0] < exact.saving.speedup[0] < rough.saving.speedup[1]
    assert exact.fixes[0].where is not None and exact.fixes[0].where.line == 9


def test_where_workers_hold_the_cores_too_these_become_free() -> None:
    waits, crowded = (judged(in_a_call("table", 0.4, 0.9, 0.02, 0.9, crowd=crowd, table=CALL)) for crowd in (0.0, 0.3))
    assert isinstance(waits, Finding) and isinstance(crowded, Finding) and waits.saving and crowded.saving
    assert crowded.saving.speedup[0] > waits.saving.speedup[0]
    assert waits.saving.speedup[1] > 1 / 0.6, "with warm caches"


def test_what_is_left_at_worst_counts() -> None:
    all_gone, some = judged(spending(0.5)), judged(spending(0.5), left=0.5)
    assert isinstance(all_gone, Finding) and isinstance(some, Finding) and all_gone.saving and some.saving
    assert some.saving.speedup[0] < all_gone.saving.speedup[0]
    assert some.saving.speedup[1] == pytest.approx(all_gone.saving.speedup[1])


def crowded(crowd_s: float, busy_cores: float) -> Analysis:
    """A loader that keeps up on two cores, of which its worker takes one."""
    values = {
        "fetch.wall_s": {0: 1.0},
        "fetch.cpu_share": {0: 1.0},
        "loader.workers": {0: 1},
        "loader.busy_share": {0: 1.0},
        "loader.table_share": 1.0,
        "loader.table_error": 0.0,
        "step.run_delay_s": {0: crowd_s},
        "cpu.other_cores": 0.0,
    }
    own = {0: rank(input_wait=0.01)}
    return jobs.job(own, values=values, loaders=(loader(0, 1),), table=CALL, cores=2.0, job_cores=busy_cores)


def test_where_workers_hold_the_cores_training_gets_them_back() -> None:
    finding = judged(crowded(0.3, 2.0))
    assert isinstance(finding, Finding) and finding.saving is not None
    assert finding.saving.speedup == pytest.approx((1 / 0.7, 1 / 0.7), rel=0.02), "no thread waits for a core"
    assert "waits for a core that the workers hold" in finding.evidence[1].note
    assert judged(crowded(0.09, 2.0)) == Clear("DAT019")


def test_nothing_is_said_without_a_share_a_wait_or_a_call() -> None:
    assert judged(spending(None)) == NotMeasured("DAT019", (LOADER_TABLE_SHARE,))
    for a in (spending(0.29), spending(0.9, wait=0.04), replace(spending(0.9), table=None)):
        assert judged(a) == Clear("DAT019")


def test_the_middle_of_the_gain_is_compared_with_that_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[float] = []
    monkeypatch.setattr(frequent_calls, "better_than_workers", lambda a, step_s: bool(compared.append(step_s)) or True)
    finding = judged(spending(0.9, 0.12))
    assert isinstance(finding, Finding) and finding.saving is not None
    assert finding.circumstances == {"better than workers"}
    low, high = finding.saving.speedup
    assert low < 1.0 / compared[0] < high
