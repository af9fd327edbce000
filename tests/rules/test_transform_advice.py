"""What DAT011, DAT001 and DAT013 advise about a sample's making: the transform, its equivalent, the user's own line, a lock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import input_rule_cases as jobs
import pytest
from rule_cases import SCRIPT, dat001, without

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine, SharedLock
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis) -> Finding:
    result = run_rule(RULES[rule], analysis, Config())
    assert isinstance(result, Finding), result
    return result


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("RandomResizedCrop", "(500×375) smaller"),
        ("GaussianBlur", "kernel_size"),
        ("ColorJitter", "RandomApply"),
        ("ToTensor", "uint8"),
        ("Posterize", "after the crop"),  # one that nothing is known of
    ],
)
def test_a_librarys_transform_comes_with_its_equivalent_and_the_loaders_place(name: str, words: str) -> None:
    fix = found("DAT011", jobs.dat011(name=name, file="")).fixes[0]
    assert name in fix.title and words in fix.change
    assert fix.where == Where(SCRIPT, 42)


def test_the_users_own_transform_comes_with_its_place() -> None:
    finding = found("DAT011", jobs.dat011(name="Sharpen"))
    assert "Sharpen takes 60 %" in finding.title and "± 2 %" in finding.evidence[0].note
    assert finding.fixes[0].where == Where(SCRIPT, 33) and "loops in Python" in finding.fixes[0].change


def stacks(seen: int, looks: int, **more: Any) -> Analysis:
    made = jobs.sample(0.1)
    return dat001(sample=replace(made, lines=(SampleLine("blur", "/job/data.py", 21, seen, looks),)), **more)


def test_exhausted_cpus_are_traced_to_the_line_where_samples_are_made() -> None:
    finding = found("DAT001", stacks(18, 20))
    assert finding.fixes[0].where == Where("/job/data.py", 21)
    assert any("blur (data.py:21)" in e.note for e in finding.evidence)


@pytest.mark.parametrize(("seen", "looks"), [(13, 20), (5, 5)])
def test_few_stacks_or_stacks_all_over_name_no_line(seen: int, looks: int) -> None:
    assert found("DAT001", stacks(seen, looks)).fixes[0].where == Where(SCRIPT, 42)


@pytest.mark.parametrize(("slower", "chance"), [(1.09, True), (1.2, False)])
def test_which_of_equally_fed_ranks_comes_last_is_chance(slower: float, chance: bool) -> None:
    made = jobs.dat011()
    walls = {("fetch.wall_s", "rank:1"): slower * made.value("fetch.wall_s", 0)}
    assert ("DAT008" in found("DAT011", replace(made, values={**made.values, **walls})).explains) is chance


def test_workers_that_take_turns_are_told_where_they_stand_and_what_shares_without_a_lock() -> None:
    finding = found("DAT013", jobs.dat013())
    assert finding.title.startswith("2 loader workers take turns at a lock")
    assert "9 of 12 looks at Frames.__getitem__ (train.py:61)" in finding.evidence[0].note
    server = found("DAT013", jobs.dat013(lock=SharedLock("server")))
    assert server.fixes[0].where == Where(SCRIPT, 42) and "memmap" in server.fixes[0].change


def test_where_nobody_looked_at_the_workers_a_lock_is_not_measured() -> None:
    unseen = run_rule(RULES["DAT013"], without(jobs.dat013(), "loader.lock_share"), Config())
    assert unseen == NotMeasured("DAT013", ("loader.lock_share",))
