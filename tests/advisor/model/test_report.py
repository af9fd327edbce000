"""The JSON report is the contract: schema, keys, order, no NaN."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.findings import Evidence, Fix
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.report import Throughput
from rn50_advisor.advisor.report import render

WORDS = """schema verdict job throughput step_time findings outcomes budget capacities segments timeline environment facts gaps
overhead ranks host gpus worker_curve nodes efficiency time_lost opportunities"""
KEYS = WORDS.split()


@pytest.mark.parametrize("name", samples.ALL)
def test_keys_are_all_there_and_in_the_same_order(name: str) -> None:
    document = json.loads(render(samples.ALL[name](), "json"))
    assert list(document) == KEYS
    assert document["schema"] == "rn50-advisor/report/1"


def test_content_is_as_agreed() -> None:
    document = json.loads(render(samples.bottleneck(), "json"))
    assert document["verdict"]["state"] == "bottleneck" and document["verdict"]["rule"] == "DAT003"
    finding = document["findings"][0]
    assert finding["saving"] == {
        "seconds_per_step": [0.31, 0.38],
        "speedup": [2.13, 2.86],
        "basis": samples.LOADER.saving.basis if samples.LOADER.saving else None,
        "likely": 2.47,
        "confidence": 0.8,
        "bounds": [1.91, 3.67],
    }
    assert finding["fixes"][0]["where"] == {"file": "samples/train.py", "line": 142}
    assert finding["explains"] == ["COM002"] and document["findings"][1]["explained_by"] == "DAT003"
    assert document["budget"]["per_rank"]["1"]["input_wait"] == 0.431


def test_what_only_the_program_needs_is_no_part_of_it() -> None:
    evidence = Evidence("step.samples", 8.0, "samples", None, "of one rank", form="continues", gpu=1)
    fix = Fix("more workers", call=CallChange.of("DataLoader", num_workers=6), options=("pass --workers 6",), gpus=(1,))
    report = replace(samples.bottleneck(), findings=(replace(samples.LOADER, evidence=(evidence,), fixes=(fix,)),))
    finding = json.loads(render(report, "json"))["findings"][0]
    assert list(finding["evidence"][0]) == ["metric", "value", "unit", "threshold", "note"]
    assert list(finding["fixes"][0]) == ["title", "change", "where", "effort", "diff"]


def test_what_is_no_number_becomes_null_in_strict_json() -> None:
    report = replace(samples.healthy(), throughput=Throughput(math.nan, math.inf, -math.inf, 1))

    def refuse(word: str) -> float:
        raise AssertionError(word)

    document = json.loads(render(report, "json"), parse_constant=refuse)
    unknown = ("samples_per_s", "steps_per_s", "batch_size", "watts", "joules_per_sample")
    assert document["throughput"] == {**dict.fromkeys(unknown), "world_size": 1}


def test_it_is_ascii_so_that_no_locale_can_break_it() -> None:
    assert render(samples.hostile(), "json").isascii()


def test_the_forecast_over_workers_is_as_agreed() -> None:
    curve = json.loads(render(samples.bottleneck(), "json"))["worker_curve"]
    assert (curve["measured"], curve["knee"]) == (0, 3)
    assert curve["points"][1] == {"workers": 1, "samples_per_s": [140.0, 160.0]}
    assert json.loads(render(samples.healthy(), "json"))["worker_curve"] is None
