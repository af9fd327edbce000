"""CMP029, independent iterations one by one: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, IndependentLoop, IteratesOver
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def cmp029(
    spent: float | None = 0.1,
    *,
    samples: int = 40,
    iterations: int = 2000,
    backward_s: float = 0.05,
    backward: float = 0.6,
    over: IteratesOver = "data",
    batches: float = 1.0,
    cuda: bool = False,
    grows: bool = False,
    share: float = 0.0,
    **more: Any,
) -> Analysis:
    """A rank that spends so many seconds of its second in a loop of so many iterations of four operations."""
    facts = {"0": {"cuda": {"devices": 1}} if cuda else {}}
    values = {} if spent is None else {"step.iterations_s": {0: spent}, "step.batches": {0: batches}}
    loops = (IndependentLoop(SCRIPT, 30, "loss", over, samples, iterations, 4, backward_s, grows, share),)
    own = {0: rank(forward=0.9 - backward, backward=backward)}
    return job(own, values=values, independent_loops=loops, facts=facts, **more)


TABLE = Table(
    "CMP029",
    cmp029,
    lines={
        "iterations": ({"spent": 0.0332, "backward_s": 0.03}, {"spent": 0.0326, "backward_s": 0.03}),
        "each": ({"iterations": 501}, {"iterations": 499}),
    },
    false_alarms={
        "no line": {"samples": 9},
        "on a GPU": {"cuda": True},
        "nodes of something else": {"backward_s": 0.029},
    },
    severities=(
        ({"spent": 0.2, "backward_s": 0.2}, "critical"),
        ({"spent": 0.15, "backward_s": 0.15}, "high"),
        ({"spent": 0.0332, "backward_s": 0.03}, "medium"),
    ),
    where=Where(SCRIPT, 30),
    not_measured={"no profile": ({"spent": None}, ("step.iterations_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ("data", "one operation"),
        ("modules", "one wider layer"),
        ("parameters", "all parameters"),
        ("squares", "weight_decay"),
    ],
)
def test_the_fix_fits_what_the_loop_goes_through(over: IteratesOver, words: str) -> None:
    (fix,) = found("CMP029", cmp029(over=over)).fixes
    assert words in fix.title


def test_hardly_anything_is_left_of_a_penalty_that_the_optimizer_takes_over() -> None:
    penalty, other = (found("CMP029", cmp029(over=over)).saving for over in ("squares", "parameters"))
    assert penalty is not None and other is not None and penalty.speedup[0] > other.speedup[0]


def test_micro_batches_go_round_for_each_backward_pass() -> None:
    once, twice = (found("CMP029", cmp029(batches=n)).saving for n in (1.0, 2.0))
    assert once is not None and twice is not None and twice.seconds_per_step[1] > once.seconds_per_step[1]


def test_only_ranks_that_spend_time_in_the_loop_spare_it() -> None:
    own = {n: rank(forward=0.3, backward=0.6) for n in (0, 1)}
    one, both = (
        job(
            own,
            values={"step.iterations_s": {0: 0.1, 1: other}, "step.batches": {0: 1.0, 1: 1.0}},
            independent_loops=(IndependentLoop(SCRIPT, 30, "loss", "data", 40, 2000, 4, 0.05),),
            facts={"0": {}, "1": {}},
        )
        for other in (0.0, 0.1)
    )
    assert isinstance(run_rule(RULES["CMP029"], one, Config()), Clear), "the other rank sets the pace"
    assert found("CMP029", both)


def test_what_goes_through_all_before_it_computes_less_at_once() -> None:
    """Of 24 iterations in nearly all of the step two in 25 are left, however long an operation takes."""
    nearly_all = {"spent": 0.39, "backward": 0.5, "backward_s": 0.49, "iterations": 24}
    finding = found("CMP029", cmp029(**nearly_all, grows=True))
    assert "causal mask" in finding.fixes[0].title and "all before it" in finding.evidence[1].note
    assert finding.saving is not None and finding.saving.speedup[0] > 3.0 > 12.0 - finding.saving.speedup[1]
    assert isinstance(run_rule(RULES["CMP029"], cmp029(**nearly_all), Config()), Clear), (
        "of long operations little is left to gain"
    )


def test_a_loop_that_is_most_of_the_forward_pass_takes_its_share_of_it() -> None:
    few_samples = {"spent": 0.1, "backward": 0.5, "backward_s": 0.4, "iterations": 2000}
    sampled, whole = (found("CMP029", cmp029(**few_samples, share=share)).saving for share in (0.0, 1.0))
    assert sampled is not None and whole is not None and whole.speedup[0] > 1.5 * sampled.speedup[0]
