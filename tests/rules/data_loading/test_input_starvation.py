"""Which ranks wait for input, and which of them only while they wait for others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from input_rule_cases import throttled
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.data_loading.input_starvation import (
    batch_every_s,
    input_evidence,
    input_waits,
    making_waits,
    ranks_with_hidden_wait,
)
from rule_cases import job, loader, rank
from rule_runs import RULES, found


def test_a_rank_that_gets_batches_in_time_only_by_waiting_for_another_is_short_of_input_too() -> None:
    made = throttled()
    assert input_waits(made) == {0: pytest.approx(0.86), 1: 0.95} and ranks_with_hidden_wait(made) == (0,)
    finding = found("DAT002", made)
    assert finding.severity == "critical" and "rank 0 is also short of batches" in finding.evidence[0].note
    assert run_rule(RULES["DAT008"], made, Config()) == Clear("DAT008")


def test_batches_come_as_often_as_workers_take_turns() -> None:
    values = {"fetch.wall_s": {0: 0.6, 1: 0.6, 2: 0.6}, "loader.workers": {0: 3.0, 1: 0.0}}
    a = job({n: rank() for n in range(3)}, values=values)
    assert batch_every_s(a) == pytest.approx({0: 0.2, 1: 0.6, 2: 0.6})


def waiting(**values: dict[int, float]) -> Analysis:
    named = {name.replace("__", "."): by_rank for name, by_rank in values.items()}
    return job({0: rank(input_wait=0.2), 1: rank(input_wait=0.0)}, values=named)


def test_a_rank_whose_workers_keep_up_anyway_waits_for_nothing_hidden() -> None:
    """Its batches come every 0.5 s, and its step is of one."""
    quick = {"fetch__wall_s": {0: 0.5, 1: 0.5}, "loader__workers": {0: 1.0, 1: 1.0}}
    assert input_waits(waiting(**quick, comm__exposed_s={1: 0.2})) == {0: 0.2, 1: 0.0}
    assert ranks_with_hidden_wait(waiting(**quick, comm__exposed_s={1: 0.2})) == ()


def test_no_hidden_wait_exceeds_the_longest_measured_wait() -> None:
    slow = {"fetch__wall_s": {0: 5.0, 1: 5.0}, "comm__exposed_s": {1: 0.9}}
    assert input_waits(waiting(**slow, loader__workers={0: 1.0, 1: 1.0})) == {0: 0.2, 1: 0.2}
    assert input_waits(waiting(**slow, loader__workers={0: 0.0, 1: 0.0})) == {0: 0.2, 1: 0.0}, "its wait is its loading"


def test_handing_over_what_is_made_is_no_wait_for_making() -> None:
    handed = waiting(fetch__hand_over_s={0: 0.05}, step__batches={0: 2.0, 1: 2.0})
    assert making_waits(handed) == pytest.approx({0: 0.1, 1: 0.0})
    assert making_waits(waiting(fetch__hand_over_s={0: 0.9})) == pytest.approx({0: 0.0, 1: 0.0})


def test_the_evidence_counts_other_loaders_of_the_step() -> None:
    row = input_evidence(waiting(), 0.2, 0.05)
    assert (row.value, row.threshold, row.note) == (0.2, 0.05, "20 % of a 1.00 s step")
    several = replace(waiting(), loaders=(loader(0, 2, beside=1), loader(1, 2)))
    assert input_evidence(several, 0.2, 0.05).note.endswith("2 loaders feed each step; this one's batches take longest")
