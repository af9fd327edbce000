"""Time between steps: its place, its ranks, its lines, and what it may save."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.rules.loop.between_steps import (
    collects_between_steps,
    gap_evidence,
    gap_place,
    gap_saving,
    gap_severity,
    growing_gap,
    hottest,
    line_words,
    longest_gap,
    on_ranks,
    ranks_that_spend,
)
from rule_cases import SCRIPT, hot, rank
from rule_runs import found


@pytest.mark.parametrize("rule", ["LOP002", "LOP004"])
@pytest.mark.parametrize("share", [0.6, 0.59])
def test_a_single_gap_promises_no_certain_gain(rule: str, share: float) -> None:
    io = 0.9 if rule == "LOP002" else 0.1
    once = {"step.gap_s": {0: 0.4, 1: 0.0}, "step.longest_gap_s": {0: 18.0}, "step.longest_gap_share": {0: share}}
    finding = found(rule, jobs.job({0: rank(gap=0.4), 1: rank(0.6)}, values={"gap.io_share": io, **once}))
    assert finding.saving is not None
    if share >= 0.6:
        assert finding.severity == "medium" and finding.saving.speedup[0] == 1.0
        assert [e.value for e in finding.evidence if e.metric == "step.longest_gap_s"] == [18.0]
    else:
        assert finding.severity == "critical" and finding.saving.speedup[0] > 1.3


@pytest.mark.parametrize("rule", ["LOP002", "LOP004"])
def test_a_gap_that_grows_is_work_on_everything_so_far(rule: str) -> None:
    values = {"gap.io_share": 0.9 if rule == "LOP002" else 0.1, "step.gap_s": {0: 0.4}, "step.early_gap_s": {0: 0.1}}
    finding = found(rule, jobs.job({0: rank(gap=0.4)}, values={**values, "step.late_gap_s": {0: 0.9}}))
    assert [e.value for e in finding.evidence if e.metric == "step.late_gap_s"] == [0.9]
    assert "only new values" in finding.fixes[0].change
    steady = found(rule, jobs.job({0: rank(gap=0.4)}, values={**values, "step.late_gap_s": {0: 0.149}}))
    assert not steady.fixes[0].change


def pausing(*gaps_s: float, **values: dict[int, float]) -> Analysis:
    """Each rank pauses for so long between its steps and computes for the rest of a second."""
    named = {name.replace("__", "."): by_rank for name, by_rank in values.items()}
    return jobs.job({n: rank(gap=gap_s) for n, gap_s in enumerate(gaps_s)}, values=named)


def test_only_a_clear_growth_counts() -> None:
    grows = pausing(0.2, 0.1, step__gap_s={0: 0.2, 1: 0.1}, step__early_gap_s={0: 0.1}, step__late_gap_s={0: 0.151})
    assert growing_gap(grows) == (0.1, 0.151)
    other = pausing(0.2, 0.1, step__gap_s={0: 0.2, 1: 0.1}, step__early_gap_s={1: 0.1}, step__late_gap_s={1: 0.2})
    assert growing_gap(other) is None, "the rank that spends most counts"
    assert growing_gap(pausing(0.2)) is None


def test_the_line_is_the_first_of_its_kind() -> None:
    a = replace(
        pausing(0.2), hot_lines=(hot(71, "log", io=True), hot(93, "smooth", io=False), hot(94, "sum", io=False))
    )
    assert hottest(a, output=True) == (a.hot_lines[0], Where(SCRIPT, 71))
    assert hottest(a, output=False) == (a.hot_lines[1], Where(SCRIPT, 93))
    assert hottest(pausing(0.2), output=False) == (None, None)


@pytest.mark.parametrize(
    ("gaps_s", "ranks", "words"),
    [
        ((0.2,), (), ""),
        ((0.2, 0.2), (), ""),
        ((0.2, 0.06), (0,), " on rank 0"),
        ((0.2, 0.07), (), ""),  # the other does as well, a little less
        ((0.0, 0.2, 0.1), (1, 2), " on ranks 1–2"),
        ((0.0, 0.0), (), ""),
    ],
)
def test_ranks_are_named_that_spend_time_where_others_hardly_do(
    gaps_s: tuple[float, ...], ranks: tuple[int, ...], words: str
) -> None:
    found = ranks_that_spend(pausing(*gaps_s), "gap")
    assert (found, on_ranks(found)) == (ranks, words)


@pytest.mark.parametrize(("before_s", "place"), [(0.11, "between backward and optimizer"), (0.1, "between the steps")])
def test_the_title_names_the_place_of_most_of_the_time(before_s: float, place: str) -> None:
    assert gap_place(pausing(0.2, step__before_update_s={0: before_s})) == place
    assert gap_place(pausing(0.2)) == "between the steps"


@pytest.mark.parametrize(("collecting_s", "most"), [(0.1, True), (0.099, False)])
def test_collections_are_most_of_it_on_the_rank_that_pauses_longest(collecting_s: float, most: bool) -> None:
    assert collects_between_steps(pausing(0.2, 0.0, gc__between_s={0: collecting_s, 1: 0.5})) is most
    assert not collects_between_steps(pausing(0.0, gc__between_s={0: 0.1}))
    assert not collects_between_steps(pausing(0.2))


def test_one_long_gap_is_named_and_never_worse_than_medium() -> None:
    once = pausing(0.4, step__longest_gap_s={0: 18.0}, step__longest_gap_share={0: 0.6})
    often = pausing(0.4, step__longest_gap_s={0: 18.0}, step__longest_gap_share={0: 0.59})
    assert (longest_gap(once), longest_gap(often), longest_gap(pausing(0.4))) == (18.0, None, None)
    assert [gap_severity(once, share) for share in (0.4, 0.2, 0.06, 0.03, 0.01)] == [
        "medium",
        "medium",
        "medium",
        "low",
        None,
    ]
    assert gap_severity(often, 0.4) == "critical"
    assert [row.metric for row in gap_evidence(once, 0.4, 0.05, None)] == ["step.gap_s", "step.longest_gap_s"]


def test_the_evidence_says_how_much_where_and_at_which_line() -> None:
    gap, samples = gap_evidence(pausing(0.2), 0.2, 0.05, replace(hot(93, "smooth", io=False), leaf="", samples=12))
    assert (gap.value, gap.threshold, gap.note) == (0.2, 0.05, "20 % of the step, after the optimizer")
    assert (samples.value, samples.note) == (12.0, f"{SCRIPT}:93 in smooth")


def test_at_best_nothing_is_left_of_the_gap_and_at_worst_a_quarter() -> None:
    a = pausing(0.4, 0.4)
    saving = gap_saving(a, "no pause")
    assert saving.basis == "no pause" and a.model is not None
    assert saving.seconds_per_step == pytest.approx((0.3, 1.0 - a.model.at_best(0.6)))


@pytest.mark.parametrize(
    ("threads", "best", "worst"),
    [
        # of 0.6 s of compute 0.6 of 0.5 s in which the thread waits for a core, or half as much
        pytest.param(1.0, 0.3, 0.45, id="a training thread alone"),
        # waits of another thread, of which it waits for 0.75: 0.5 and 0.75 times 0.3
        pytest.param(2.0, 0.6 * (1 - 0.725), 0.6 * (1 - 0.3625), id="with a helper"),
    ],
)
def test_what_gives_work_to_a_thread_beside_the_steps_costs_their_waits_for_cores(
    threads: float, best: float, worst: float
) -> None:
    values: dict[str, Any] = {
        "step.run_delay_s": {0: 0.5},
        "threads.intra_op": {0: threads},
        "threads.waiting": {0: 0.8},
        "cpu.job_cores": 2.0,
        "cpu.other_cores": 0.0,
    }
    a = jobs.job({0: rank(forward=0.2, backward=0.4, gap=0.4)}, values=values)
    assert a.model is not None
    left = gap_saving(a, "").seconds_per_step
    saved = gap_saving(a, "", with_thread=True).seconds_per_step
    assert saved == pytest.approx((1.0 - worst - 0.1, 1.0 - a.model.at_best(best))) and saved[0] > left[0]


def test_ranks_that_wait_equally_long_for_cores_share_what_they_waited() -> None:
    """Rank 1 waited 0.3 s for a core while rank 0 paused; then each waits for 0.2."""
    own = {0: rank(0.8, gap=0.4), 1: rank(1.0)}
    a = jobs.job(own, values={"step.run_delay_s": {0: 0.1, 1: 0.3}})
    assert a.model is not None
    assert gap_saving(a, "").seconds_per_step[1] == pytest.approx(1.0 - a.model.at_best(0.9))


@pytest.mark.parametrize(
    ("leaf", "words"),
    [
        ("", "/job/train.py:12 in train"),
        ("train (train.py:12)", "/job/train.py:12 in train"),
        ("write (logging/__init__.py:1100)", "/job/train.py:12 in train, in write (logging/__init__.py:1100)"),
    ],
)
def test_a_line_is_named_once(leaf: str, words: str) -> None:
    assert line_words(replace(hot(12, "train", io=False), file="/job/train.py", leaf=leaf)) == words
