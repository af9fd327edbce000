"""DAT006, workers restart every epoch: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import input_rule_cases as input_jobs
from rn50_advisor.advisor.model.measures.step_measures import EPOCH_START_S
from rule_cases import LINE
from rule_runs import best_step_s, found, judged, warm_step_s
from rule_table import Table, warm
from table_checks import Check, checks

QUICK = {"first": 0.05, "wall": 0.05}


TABLE = Table(
    "DAT006",
    input_jobs.dat006,
    lines={
        "start": ({**QUICK, "start": 0.05}, {**QUICK, "start": 0.0499}),
        "epochs": ({"epochs": 1.0}, {"epochs": 0.0}),
    },
    false_alarms={
        "a single epoch": {"epochs": 0.0},
        "workers that live on": {"persistent": True},
        "loading in the training process": {"workers": 0},
        "a sampler that sorts all samples before the epoch": {"index": 1.9},
        "workers that live on, of a loader made for each of two folds": {
            "persistent": True,
            "made": 2,
            "epochs": 8.0,
        },
        "an index that each iterator of an IterableDataset reads anew": {"length": None, "first": 1.95},
    },
    severities=(
        (
            {"start": 0.45, "first": 0.9, "wall": 0.9},
            "critical",
        ),  # a fifth of it stays at best, two fifths at worst
        ({"start": 0.3, "first": 0.6, "wall": 0.6}, "high"),
        ({"start": 0.15, "first": 0.3, "wall": 0.3}, "medium"),
    ),
    where=LINE,
    best=({}, warm(1 / 0.82)),
    also_fires={
        "new workers open their files again": {"first": 1.8},
        "workers that were to live on, of a loader that is made anew": {"persistent": True, "made": 3},
        "an iterator for each step": {"steps": 1.0, "wall": 0.0, "first": 0.0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("given", "basis"),
    [
        ({"steps": 1.0, "wall": 0.0, "first": 0.0}, "one iterator for all steps"),
        ({}, "persistent workers; the wait for the first batch of an epoch remains"),
    ],
)
def test_dat006_promises_the_gain_of_its_first_fix(given: dict[str, Any], basis: str) -> None:
    saving = found("DAT006", TABLE.job(**given)).saving
    assert saving is not None and saving.basis == basis


def test_dat006_predicts_no_gain_if_the_first_batch_takes_the_time() -> None:
    map_style, stream = found("DAT006", TABLE.job(first=1.2)), found("DAT006", TABLE.job(first=1.2, length=None))
    assert map_style.saving is not None and stream.saving is not None
    assert map_style.saving.speedup[0] == pytest.approx(stream.saving.speedup[0])
    assert map_style.saving.speedup[1] > stream.saving.speedup[1], "an iterable starts again either way"


def test_dat006_is_less_sure_of_two_epochs() -> None:
    assert found("DAT006", TABLE.job(epochs=1.0)).confidence < found("DAT006", TABLE.job(epochs=2.0)).confidence


def test_dat006_waits_for_each_worker_at_the_epoch_start_at_worst() -> None:
    # ten steps: 0.1 of the 0.2 s is the first batch's 0.4 s and two hand-overs of 0.3 s
    usual = input_jobs.dat006()
    values = {**usual.values, **{("step.input_wait_s", n): 0.3 for n in (0, 1)}}
    finding = found("DAT006", replace(usual, values=values))
    assert finding.saving is not None
    assert finding.saving.seconds_per_step[0] == pytest.approx(0.75 * 0.1)
    assert best_step_s(finding) == pytest.approx(warm_step_s(1 - 0.18))


def test_dat006_gives_back_what_starting_workers_take_from_the_first_steps_compute() -> None:
    usual = input_jobs.dat006()
    values = {**usual.values, **{("epoch.start_compute_s", n): 0.5 for n in (0, 1)}}
    plain, slowed = found("DAT006", usual), found("DAT006", replace(usual, values=values))
    assert plain.saving is not None and slowed.saving is not None
    gained = slowed.saving.seconds_per_step[0] - plain.saving.seconds_per_step[0]
    assert gained == pytest.approx(0.75 * 0.025), "half of it at worst, a tenth of that in each step"
    assert [best_step_s(f) for f in (plain, slowed)] == pytest.approx([warm_step_s(0.82), warm_step_s(0.77)]), (
        "at best all of it"
    )


def test_dat006_counts_slower_computing_as_part_of_an_epochs_start() -> None:
    """Workers that fill their caches anew take the cores that the first steps compute on; the loop waits for little."""
    usual = input_jobs.dat006(start=0.04, **QUICK)
    assert "DAT006" not in {each.rule for each in judged(usual).findings}
    starts = usual.by_rank(EPOCH_START_S)
    values = {**usual.values, **{("epoch.start_compute_s", n): 3 * s for n, s in starts.items()}}
    finding = found("DAT006", replace(usual, values=values))
    assert any("slower compute in the first steps" in each.note for each in finding.evidence)
