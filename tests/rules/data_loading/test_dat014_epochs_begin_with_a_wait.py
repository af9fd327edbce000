"""DAT014, epochs begin with a wait: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

import input_rule_cases as input_jobs
import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.findings import Clear, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE
from rule_runs import RULES, found
from rule_table import Table, warm
from table_checks import Check, checks

# In old workers, or in new ones whose first batch takes `first`.
dat014 = partial(input_jobs.dat006, first=0.0, persistent=True, length=None)

TABLE = Table(
    "DAT014",
    dat014,
    lines={
        "start": ({"start": 0.0701}, {"start": 0.0699}),  # making a batch is 0.02 of it
        "epochs": ({"epochs": 1.0}, {"epochs": 0.99}),
    },
    false_alarms={
        "workers that are started anew": {"persistent": False, "length": 80, "first": 1.5},
        "workers of a loader that is made anew": {"made": 3, "length": 80, "first": 1.5},
        "a stream in new workers, which take the time": {"persistent": False, "first": 0.3},
        "only the time to make a batch": {"wall": 1.6},
        "sixteen workers that begin at once on four cores": {"workers": 8, "cores": 4.0, "wall": 0.4},
    },
    severities=(({"start": 0.33}, "critical"), ({"start": 0.2}, "high"), ({"start": 0.1}, "medium")),
    where=LINE,
    best=({"start": 0.22}, warm(1 / 0.8)),
    also_fires={
        "a stream fills its buffer in new workers too": {"persistent": False, "first": 1.5},
        "a sampler orders a large data set": {"length": 10**8},
        "in the training process": {"workers": 0, "length": 10**8},
        "a sampler orders a large data set while new workers wait": {
            "persistent": False,
            "length": 10**8,
            "index": 1.5,
        },
        "an iterator for each step, from workers that live on": {"steps": 1.0, "wall": 0.05, "length": 80},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


ORDERED = {"persistent": False, "length": 10**8, "index": 1.5}


def test_dat014_reports_the_order_of_samples_if_workers_are_new() -> None:
    order, stream = found("DAT014", TABLE.job(**ORDERED)), found("DAT014", TABLE.job())
    assert order.title == "Data loading: slow epoch start, waiting for the sampling order"
    assert [(e.metric, round(e.value, 6)) for e in order.evidence] == [
        ("step.epoch_start_s", 0.15),
        ("epoch.index_s", 1.5),
    ]
    assert "the order of samples" in order.evidence[0].note and "2.00 s at each of 3 epochs" in order.evidence[0].note
    assert order.saving is not None and "no sampling order to draw" in order.saving.basis
    assert stream.saving is not None and "make a batch" in stream.saving.basis
    assert [e.metric for e in stream.evidence] == ["step.epoch_start_s", "fetch.wall_s"]


@pytest.mark.parametrize(("start", "says"), [(0.2, NotMeasured("DAT014", ("epoch.index_s",))), (0.04, Clear("DAT014"))])
def test_dat014_does_not_guess_how_long_drawing_the_order_takes(start: float, says: Clear | NotMeasured) -> None:
    unknown = jobs.without(TABLE.job(**{**ORDERED, "start": start}), "epoch.index_s")
    assert run_rule(RULES["DAT014"], unknown, Config()) == says


def test_dat014_gives_the_line_of_the_jobs_sampler_for_its_order() -> None:
    line = HotLine("/job/samplers.py", 47, "Sorted.__iter__", "", 180, 0.45, io=False)
    order, stream = (found("DAT014", replace(TABLE.job(**more), drawing_lines=(line,))) for more in (ORDERED, {}))
    assert order.fixes[0].where == Where("/job/samplers.py", 47)
    assert stream.fixes[0].where == LINE
