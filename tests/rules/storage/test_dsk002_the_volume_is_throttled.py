"""DSK002, the volume is throttled: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import storage_rule_cases as storage_jobs
from rule_runs import found
from rule_table import Table, waits, warm
from storage_rule_cases import NFS, NOT_STARVED, STARVED, notes
from table_checks import Check, checks

# A rate as even as a limit makes it, and a sign that it is one.
EVEN: dict[str, Any] = {"limit": None, "rate": 87.0, "spread": 0.03, "device": 0.5}


TABLE = Table(
    "DSK002",
    storage_jobs.dsk002,
    lines={
        **STARVED,
        "blocked": ({**EVEN, "blocked": 0.5}, {**EVEN, "blocked": 0.499}),
        "near": ({"rate": 12.6}, {"rate": 12.59}),
        "exceeded": (
            {"limit": None, "volume_exceeded_share": 0.05},
            {"limit": None, "volume_exceeded_share": 0.049},
        ),
        "packets": (
            {"limit": None, "storage": NFS, "link_exceeded_s": 1.0},
            {"limit": None, "storage": NFS, "link_exceeded_s": 0.99},
        ),
        "flat": ({**EVEN, "spread": 0.03}, {**EVEN, "spread": 0.031}),
        "device": ({**EVEN, "device": 0.5}, {**EVEN, "device": 0.51}),
        "round": ({**EVEN, "device": 1.0, "rate": 98.5}, {**EVEN, "device": 1.0, "rate": 98.4}),
        "chance": (
            {**EVEN, "device": 1.0, "reads": 441.0, "spread": 0.0095},
            {**EVEN, "device": 1.0, "reads": 441.0, "spread": 0.0096},
        ),
    },
    false_alarms={
        **NOT_STARVED,
        "the limit is far away": {"rate": 5.0},
        "a disk of its own speed": {"limit": None, "spread": 0.12},
        "readers that take turns at an even disk": {"limit": None, "rate": 87.0, "spread": 0.02},
        "a limit that is met, and mostly computing": {"blocked": 0.249},
        "others read the most of it": {"rate": 100.0, "job_share": 0.1},
        "a full link of a job with local data": {"limit": None, "link_exceeded_s": 50.0},
    },
    severities=waits("wait"),
    best=({"wait": 0.4}, warm(1 / 0.6)),
    also_fires={
        "a limit that saves up while workers compute": {"blocked": 0.25},
        "a limit on the number of reads": {"limit": None, "reads": 198.0, "reads_limit": 200.0},
        "the machine's own limit": {"limit": None, "instance_exceeded_share": 0.4},
        "as many reads as volumes are sold with": {
            "limit": None,
            "reads": 3001.0,
            "spread": 0.2,
            "reads_spread": 0.01,
        },
        "125 MiB/s": {"limit": None, "rate": 131.07, "spread": 0.004},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_a_limit_of_the_control_group_is_named_with_its_remedy() -> None:
    finding = found("DSK002", storage_jobs.dsk002(reads=198.0, reads_limit=200.0, limit=None))
    assert finding.title == "Volume throttled: its control group allows 200 reads/s"
    assert "control group" in finding.fixes[0].title and "larger reads" in finding.fixes[1].title
    assert len(found("DSK002", storage_jobs.dsk002()).fixes) == 1  # larger reads are no fewer bytes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"device": 0.1}, "the disk itself takes 10 % of the time"),
        ({"rate": 125.0}, "providers sell"),
        ({"reads": 230.0, "spread": 0.004}, "more even than 230 reads"),
    ],
)
def test_an_even_rate_says_why_it_is_a_limit_and_is_less_sure(given: dict[str, Any], words: str) -> None:
    finding = found("DSK002", storage_jobs.dsk002(**{"limit": None, "rate": 87.0, "spread": 0.01, **given}))
    assert words in notes(finding)["storage.mb_spread"]
    assert finding.confidence <= 0.75 < found("DSK002", storage_jobs.dsk002()).confidence


def test_a_provider_that_holds_back_is_named() -> None:
    finding = found("DSK002", storage_jobs.dsk002(limit=None, volume_exceeded_share=0.4))
    assert "this volume" in finding.title and "gp3" in finding.fixes[0].change
    assert (
        "machine receives"
        in found("DSK002", storage_jobs.dsk002(limit=None, storage=storage_jobs.NFS, link_exceeded_s=9.0)).title
    )
