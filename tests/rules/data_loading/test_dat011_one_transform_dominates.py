"""DAT011, one transform dominates: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import input_rule_cases as input_jobs
from explained_rules import would_explain
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "DAT011",
    input_jobs.dat011,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "share": ({"share": 0.4}, {"share": 0.3999}),
        "crowding": ({"wait": 0.03, "crowd": 0.1}, {"wait": 0.03, "crowd": 0.0999}),
    },
    false_alarms={
        "decoding dominates, which is no transform": {"share": 0.1},
        "nobody waits for the loader": {"wait": 0.01},
        "a batch that hardly computes": {"cpu": 0.02, "delay": 0.0},
    },
    severities=(({"wait": 0.4}, "critical"), ({"wait": 0.3}, "high"), ({"wait": 0.15}, "medium")),
    where=Where(SCRIPT, 33),
    also_fires={
        "in the training process": {"workers": 0, "wall": 0.4},
        "with cores to spare": {"busy": 4.5, "workers": 2, "wall": 1.9},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


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
    fix = found("DAT011", input_jobs.dat011(name=name, file="")).fixes[0]
    assert name in fix.title and words in fix.change
    assert fix.where == Where(SCRIPT, 42)


def test_the_users_own_transform_comes_with_its_place() -> None:
    finding = found("DAT011", input_jobs.dat011(name="Sharpen"))
    assert "Sharpen takes 60 %" in finding.title and "± 2 %" in finding.evidence[0].note
    assert finding.fixes[0].where == Where(SCRIPT, 33) and "loops in Python" in finding.fixes[0].change


@pytest.mark.parametrize(("slower", "chance"), [(1.09, True), (1.2, False)])
def test_which_of_equally_fed_ranks_comes_last_is_chance(slower: float, chance: bool) -> None:
    made = input_jobs.dat011()
    walls = {("fetch.wall_s", 1): slower * made.value("fetch.wall_s", 0)}
    fed = replace(made, values={**made.values, **walls})
    assert ("DAT008" in would_explain(fed, found("DAT011", fed))) is chance
