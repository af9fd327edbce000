"""COM005, DataParallel loads GPU 0: its table and its advice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpu_rule_cases import gpu
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, rank
from rule_runs import RULES, all_words, found
from rule_table import Table
from table_checks import Check, checks

OTHER_USER = {"foreign_processes": 1.0, "foreign_mem_mb": 7_000.0, "foreign_sm_share": 0.0}


def com005(
    devices: int = 4,
    first: float = 12_000.0,
    busy: float | None = 0.9,
    others: float = 0.6,
    on_2: Mapping[str, float] | None = None,
    **more: Any,
) -> Analysis:
    """One process on several GPUs; the first holds `first` MB and is busy so much, the others hold 10,000 MB and are less busy.

    `on_2`: further values of GPU 2.
    """
    gpus = tuple(gpu(n, ranks=(0,), first_of=(0,) * (n == 0)) for n in range(max(devices, 2)))
    made = job(
        {0: rank()},
        values={"parallel.devices": {0: devices}},
        **{
            "gpu_view": GpuView(gpus),
            "facts": {"0": {"data_parallel": [{"devices": devices, "file": SCRIPT, "line": 30}]}},
            **more,
        },
    )
    found = {("gpu.mem_used_mb", g.index): 10_000.0 if g.index else first for g in gpus}
    if busy is not None:
        found |= {("gpu.util_share", g.index): others if g.index else busy for g in gpus}
    found |= {(f"gpu.{name}", 2): value for name, value in (on_2 or {}).items()}
    return replace(made, values={**made.values, **found})


TABLE = Table(
    "COM005",
    com005,
    lines={
        "devices": ({"devices": 2}, {"devices": 1}),
        "excess": ({"first": 11_000.0, "busy": None}, {"first": 10_999.0, "busy": None}),
    },
    false_alarms={
        "over one GPU": {"devices": 1},
        "all loaded alike": {"first": 10_000.0, "others": 0.9},
        "another one is loaded more": {"first": 10_000.0, "others": 0.9, "on_2": {"mem_used_mb": 17_000.0}},
        "another one is busier": {"first": 10_000.0, "busy": 0.6, "on_2": {"util_share": 0.95}},
        "memory of another user on another": {
            "first": 10_000.0,
            "others": 0.9,
            "on_2": {**OTHER_USER, "mem_used_mb": 17_000.0},
        },
    },
    severities=(({"others": 0.05}, "critical"), ({"others": 0.3}, "high"), ({}, "medium"), ({"busy": None}, "low")),
    where=Where(SCRIPT, 30),
    best=({"devices": 2, "others": 0.3}, 1.5),
    also_fires={
        "by their work alone": {"first": 10_000.0},
        "whatever another user holds on another": {"busy": None, "on_2": {**OTHER_USER, "foreign_mem_mb": 200.0}},
    },
    not_measured={
        "whose memory it is": (
            {"busy": None, "on_2": {**OTHER_USER, "mem_used_mb": 17_000.0}},
            ("gpu.foreign_processes",),
        ),
        "how much another user holds": (
            {"first": 10_000.0, "busy": None, "on_2": {"foreign_processes": 1.0, "foreign_sm_share": 0.0}},
            ("gpu.foreign_processes",),
        ),
        "whose work it is": (
            {"first": 10_000.0, "on_2": {**OTHER_USER, "foreign_mem_mb": 0.0, "foreign_sm_share": 0.3}},
            ("gpu.foreign_processes",),
        ),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_com005_compares_nothing_with_gpus_that_were_not_measured() -> None:
    measured = com005()
    blind = replace(measured, values={key: v for key, v in measured.values.items() if key[0] != "gpu.mem_used_mb"})
    assert run_rule(RULES["COM005"], blind, Config()) == NotMeasured("COM005", ("gpu.mem_used_mb",))


def test_com005_is_not_measured_if_the_first_gpu_is_unknown() -> None:
    known = com005()
    view = replace(known.gpu_view, devices=tuple(replace(gpu, first_of=()) for gpu in known.gpu_view.devices))
    unknown = run_rule(RULES["COM005"], replace(known, gpu_view=view), Config())
    assert unknown == NotMeasured("COM005", ("gpu.mem_used_mb",))


def test_com005_shows_how_to_run_one_process_a_gpu() -> None:
    finding = found("COM005", TABLE.job())
    assert "torchrun --nproc_per_node=4" in all_words(finding) and finding.scope.gpus == (0, 1, 2, 3)
    assert "1.20 times the mean of the others" in all_words(finding)


def test_com005_says_why_there_is_no_diff() -> None:
    fix = found("COM005", TABLE.job()).fixes[0]
    assert "no diff" in fix.title and not fix.diff
    assert "batch_size=batch // 4" in fix.change, "each process makes its part of the batch"
