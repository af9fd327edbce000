"""Effects of a cold start: batches made ahead, and a first epoch whose files later epochs find in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import FIRST_STEP_NS, batches, folded, plan, recording, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.cold_start import run_ahead_rows
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps, warm_up_rows
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START

Steps = list[dict[str, float]]


def ahead(steps: Steps) -> tuple[int, int]:
    """(rows of warm-up, rows fed by what was made during it)."""
    own = all_steps(recording({0: steps}))[0]
    rows = warm_up_rows(own)
    return rows, run_ahead_rows(own, rows)


def waits(*ms: float) -> Steps:
    return [step(input_wait=wait) for wait in ms]


SLOW = plan(3, forward=500)
BURSTS = waits(*([0, 0, 0, 160] * 10))  # four workers that finish together


@pytest.mark.parametrize(
    ("steps", "fed"),
    [
        pytest.param(SLOW + waits(*[0] * 8, *[40] * 40), 8, id="queues of eight"),
        pytest.param(SLOW + waits(*[10] * 8, *[40] * 40), 0, id="a quarter of the usual wait is no queue"),
        pytest.param(SLOW + waits(*[0] * 8, *[4] * 40), 0, id="a wait that hardly matters"),
        pytest.param(SLOW + waits(*[0] * 48), 0, id="a loader that keeps up"),
        pytest.param(SLOW + waits(*[40] * 48), 0, id="a loader that never was ahead"),
        pytest.param(SLOW + waits(0, *[40] * 40), 0, id="one step is chance"),
        pytest.param(SLOW + BURSTS, 0, id="workers that finish together"),
        pytest.param(SLOW + waits(*[0] * 8) + BURSTS, 11, id="queues, then workers that finish together"),
        pytest.param(SLOW + waits(*[0] * 8, *[40] * 9), 0, id="too little is left to say what is usual"),
        pytest.param(SLOW + waits(*[0] * 20, *[40] * 30), 0, id="more than a third of the run is no queue"),
    ],
)
def test_steps_that_live_off_queues_filled_in_the_warm_up_are_set_apart(steps: Steps, fed: int) -> None:
    assert ahead(steps) == (3, fed)


def test_steps_on_batches_made_ahead_count_for_no_mean_and_stand_in_the_timeline() -> None:
    analysis = analyse(recording({0: SLOW + waits(*[0] * 8, *[40] * 40), 1: SLOW + waits(*[0] * 8, *[40] * 40)}))
    assert analysis.by_rank("step.input_wait_s") == pytest.approx({0: 0.04, 1: 0.04})
    [segment] = [s for s in analysis.segments if s.kind == "run-ahead"]
    assert (segment.first_step, segment.last_step) == (3, 10) and "8 steps" in segment.label


def epochs(*each: float, steps: int = 20, first_fetch: float = 50.0) -> Steps:
    """Epochs of so many steps, each with its wait for input in ms."""
    made: Steps = []
    for wait in each:
        usual = plan(steps - 1, input_wait=wait, forward=60)
        made += [step(input_wait=wait + first_fetch, forward=60, flags=FLAG_EPOCH_START), *usual]
    return made


def first_steady(steps: Steps) -> int:
    return int(steady_steps(all_steps(recording({0: steps})))[0].step[0])


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        pytest.param(epochs(60, 5), 20, id="cold, then warm"),
        pytest.param(epochs(600, 5), 20, id="so cold that it looks like warming up"),
        pytest.param(epochs(60, 5, 5), 20, id="two warm ones"),
        pytest.param(epochs(60, 60), 3, id="always cold"),
        pytest.param(epochs(60), 3, id="a single epoch"),
        pytest.param(epochs(60, 5)[:31], 20, id="ten later steps, beside the first"),
        pytest.param(epochs(60, 5)[:30], 3, id="one less is too few"),
        pytest.param(epochs(60, 31), 3, id="less than half is the usual coming and going"),
        pytest.param(epochs(60, 29), 20, id="a little more than half is not"),
        pytest.param(epochs(15, 2), 20, id="a tenth of the step and more"),
        pytest.param(epochs(13, 2), 3, id="a little less is not worth it"),
        pytest.param(epochs(5, 60), 3, id="later ones that wait longer are no cold start"),
        pytest.param(plan(30, flags=FLAG_EPOCH_START, input_wait=60), 3, id="an epoch in each step"),
        pytest.param(epochs(5, 5, first_fetch=900), 3, id="long first fetches of every epoch"),
    ],
)
def test_a_cold_first_epoch_is_not_mixed_with_warm_ones(steps: Steps, first: int) -> None:
    assert first_steady(steps) == first


def test_what_was_folded_counts_by_its_steps() -> None:
    full = recording({0: epochs(60, 5, 5, steps=100)})
    fewer = replace(full, steps={0: folded(full.steps[0], 10, 90)})
    assert analyse(fewer).get("epoch.cold_wait_s") == pytest.approx(0.06)


def with_reads(steps: Steps, cold_blocks: int, warm_blocks: int) -> Recording:
    """Every batch made by one worker beside its step, mostly blocked."""
    made = recording({0: steps})
    rows = made.steps[0]
    second = int((rows["flags"] & FLAG_EPOCH_START != 0).nonzero()[0][-1])
    begun = [(int(t) - FIRST_STEP_NS) / 1e9 for t in rows["t_start_ns"]]
    table = batches(
        {"start": at, "wall": 80, "cpu": 10, "blocks": cold_blocks if n < second else warm_blocks, "pid": 200}
        for n, at in enumerate(begun)
    )
    loader = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 1, "batch_size": 8}
    return replace(made, batches={0: table}, facts={100: {"loaders": [loader]}})


def test_a_verdict_on_storage_is_of_how_it_goes_on() -> None:
    report = diagnose(with_reads(epochs(60, 2), 2000, 0))
    assert report.verdict.rule != "DAT002"
    [finding] = [f for f in report.findings if f.rule == "DAT002"]
    assert finding.severity == "info" and finding.saving is None and finding.seconds_per_step == 0
    assert "first epoch only" in finding.title
    [epoch, _] = [s for s in report.segments if s.kind == "epoch"]
    assert epoch.label.startswith("epoch 0, cold: 60.0 ms of waiting")


@pytest.mark.parametrize(("cold", "warm"), [(0, 0), (8, 0)])
def test_a_first_epoch_that_read_nothing_has_another_reason(cold: int, warm: int) -> None:
    report = diagnose(with_reads(epochs(60, 2), cold - 1 if cold else 0, warm))
    assert not [f for f in report.findings if f.rule == "DAT002"]


def test_storage_that_is_slow_in_every_epoch_stays_the_verdict() -> None:
    report = diagnose(with_reads(epochs(60, 60), 2000, 2000))
    assert report.verdict.rule == "DAT002" and "first epoch" not in report.verdict.title


def test_while_the_first_epoch_lasts_the_verdict_says_so() -> None:
    report = diagnose(with_reads(epochs(60), 2000, 2000))
    assert report.verdict.rule == "DAT002" and "first epoch so far" in report.verdict.title


def test_reads_of_a_cold_epoch_are_reported() -> None:
    analysis: Analysis = analyse(with_reads(epochs(60, 2), 2000, 100))
    cold: dict[str, Any] = {n.removeprefix("epoch.cold_"): v for (n, _), v in analysis.values.items() if "cold" in n}
    assert cold["read_mb"] == pytest.approx(2000 * 512 / 1e6) and cold["later_read_mb"] == pytest.approx(
        100 * 512 / 1e6
    )
    assert cold["wait_s"] == pytest.approx(0.06) and cold["later_wait_s"] == pytest.approx(0.002)


def test_what_evaluation_reads_is_not_what_training_reads() -> None:
    made = with_reads(epochs(60, 2), 2000, 100)
    [train] = made.facts[100]["loaders"]
    other = made.batches[0].copy()
    other["loader"], other["blocks"] = 1, 90_000
    facts = {100: {"loaders": [train, {**train, "id": 1, "training": False}]}}
    both = replace(made, facts=facts, batches={0: np.concatenate([made.batches[0], other])})
    assert analyse(both).value("epoch.cold_read_mb") == pytest.approx(2000 * 512 / 1e6)
