"""DAT011, one transform dominates: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import input_rule_cases as input_jobs
from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT
from rule_runs import RULES, found
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
        "no wait for the loader": {"wait": 0.01},
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


def collating(
    collate_s: float = 4.56, *, collate: str | None = "pad_batch", path: tuple[SampleLine, ...] = (), **more: Any
) -> Analysis:
    """Workers whose samples take 0.38 CPU seconds each, eight to a batch, beside what the collate function takes."""
    made = input_jobs.dat011(0.1, **more)
    assert made.sample is not None
    loaders = tuple(replace(known, collate=collate) for known in made.loaders)
    return replace(made, loaders=loaders, sample=replace(made.sample, collate_s=collate_s, path=path))


def lines(outermost: str) -> tuple[SampleLine, ...]:
    """Of a function, of one that it calls, and of a line of that one that takes three fifths."""
    inside = (SampleLine("mask", "/job/tokens.py", 59, 7, 10), SampleLine("ids", "/job/tokens.py", 49, 6, 10))
    return (SampleLine(outermost, SCRIPT, 51, 9, 10), *inside)


@pytest.mark.parametrize(
    ("collate", "outermost"),
    [
        pytest.param("pad_batch", "pad_batch", id="a function"),
        pytest.param("Padding", "Padding.__call__", id="an object"),
        pytest.param("Padding", "__call__", id="an object in Python 3.10"),
        pytest.param("Padding.collate", "Padding.collate", id="a method"),
    ],
)
def test_a_collate_function_that_takes_most_of_a_batch_is_named_with_the_line_that_most_of_it_goes_through(
    collate: str, outermost: str
) -> None:
    finding = found("DAT011", collating(collate=collate, path=lines(outermost)))
    assert finding.title == f"Data loading: {collate} takes 60 % of each batch's CPU time"
    assert finding.fixes[0].where == Where("/job/tokens.py", 59) and "np.stack" in finding.fixes[0].change
    assert finding.evidence[0].metric == "batch.collate_s" and finding.saving is not None
    assert finding.evidence[-1].note == f"of 10 go through {outermost} (train.py:51) → mask (tokens.py:59)"


@pytest.mark.parametrize("path", [(), lines("Rows.__getitem__")])
def test_without_samples_of_its_line_the_loaders_place_is_named(path: tuple[SampleLine, ...]) -> None:
    finding = found("DAT011", collating(path=path))
    assert finding.fixes[0].where == Where(SCRIPT, 42)
    assert not any(each.metric == "stack samples" for each in finding.evidence)


@pytest.mark.parametrize(
    "given",
    [{"collate": "default_collate"}, {"collate": None}, {"collate_s": 2.0}, {"wait": 0.01}],
    ids=["torch's own", "unknown", "less than two fifths", "no wait"],
)
def test_a_collate_function_is_left_alone(given: dict[str, Any]) -> None:
    assert run_rule(RULES["DAT011"], collating(**given), Config()) == Clear("DAT011")


def test_of_a_transform_and_a_collate_function_the_costlier_one_is_named() -> None:
    both = collating(collate_s=2.2)
    assert both.sample is not None
    heavy = replace(both, sample=replace(both.sample, parts=(replace(both.sample.parts[0], share=0.9),)))
    assert found("DAT011", heavy).title.startswith("Data loading: Blur")


def test_a_librarys_transform_is_placed_where_it_is_made() -> None:
    made = input_jobs.dat011(name="GaussianBlur", file="")
    assert made.sample is not None
    blur = replace(made.sample.parts[0], made_file="/job/presets.py", made_line=6)
    fix = found("DAT011", replace(made, sample=replace(made.sample, parts=(blur, *made.sample.parts[1:])))).fixes[0]
    assert fix.where == Where("/job/presets.py", 6) and "kernel_size" in fix.change
