"""Loops that start epochs too often, or with new workers: how they are recognised, and their fix."""

from __future__ import annotations

from dataclasses import replace

import pytest

from input_rule_cases import dat006
from rn50_advisor.rules.data_loading.epoch_starts import (
    EPOCH_THRESHOLDS,
    epoch_in_every_step,
    epoch_start_evidence,
    one_iterator_fix,
    starts_workers,
)
from rule_cases import LINE, job, loader, rank

LIMITS = {name: threshold.value for name, threshold in EPOCH_THRESHOLDS.items()}


@pytest.mark.parametrize(("steps", "each"), [({0: 1.0, 1: 1.0}, True), ({0: 1.49}, True), ({0: 1.5}, False)])
def test_an_epoch_of_one_step_starts_in_every_step(steps: dict[int, float], each: bool) -> None:
    assert epoch_in_every_step(job({0: rank(), 1: rank()}, values={"epoch.steps": steps})) is each


def test_most_ranks_decide_and_without_epochs_it_is_false() -> None:
    assert not epoch_in_every_step(job({n: rank() for n in range(3)}, values={"epoch.steps": {0: 1.0, 1: 9.0, 2: 9.0}}))
    assert not epoch_in_every_step(job({0: rank()}))


@pytest.mark.parametrize(
    ("workers", "persistent", "made", "new"),
    [
        (2, False, 1, True),
        (2, True, 1, False),
        (0, False, 1, False),  # nothing is started
        (2, True, 4, True),  # they persist, but the loader does not
        (2, True, 3, False),  # made three times in six epochs
    ],
)
def test_workers_are_new_in_each_epoch_unless_they_persist(
    workers: int, persistent: bool, made: int, new: bool
) -> None:
    a = job({0: rank()}, values={"epoch.starts": {0: 6.0}})
    assert starts_workers(a, loader(0, workers, persistent=persistent, made=made)) is new


def test_the_evidence_counts_the_epochs_and_times_each_start() -> None:
    row = epoch_start_evidence(dat006(), 0.2, LIMITS)
    assert (row.metric, row.value, row.threshold) == ("step.epoch_start_s", 0.2, 0.05)
    assert row.note == "20 % of the time goes to the epoch starts: 2.00 s at each of 3 epochs"
    unknown = dat006()
    values = {key: value for key, value in unknown.values.items() if key[0] != "epoch.start_s"}
    assert epoch_start_evidence(replace(unknown, values=values), 0.1, LIMITS, "starting workers").note == (
        "10 % of the time goes to starting workers"
    )


@pytest.mark.parametrize(
    ("length", "size", "title"),
    [
        (8, 8, "make epochs longer than one batch"),
        (9, 8, "use one iterator for all batches"),
        (None, 8, "use one iterator for all batches"),
        (8, None, "use one iterator for all batches"),
    ],
)
def test_a_data_set_of_one_batch_needs_longer_epochs_and_others_one_iterator(
    length: int | None, size: int | None, title: str
) -> None:
    fix = one_iterator_fix(loader(0, 2, size=size, dataset={} if length is None else {"length": length}))
    assert (fix.title, fix.where) == (title, LINE)
