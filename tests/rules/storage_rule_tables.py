"""Tables of the rules on storage. Not a test."""

from __future__ import annotations

from typing import Any

import storage_rule_cases as jobs
from rule_cases import SCRIPT
from rule_table import Given, Table, waits, warm
from storage_rule_cases import NFS

from rn50_advisor.advisor.model.findings import Where

LINE = Where(SCRIPT, 42)
STARVED: dict[str, tuple[Given, Given]] = {
    "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
    "blocked": ({"blocked": 0.5}, {"blocked": 0.499}),
    "bytes_per_sample": ({"read_mb": 0.004096}, {"read_mb": 0.004095}),
}
NOT_STARVED: dict[str, Given] = {
    "the job does not wait": {"wait": 0.01},
    "a sleep or a lock in the dataset reads nothing": {"read_mb": 0.0},
    "computing, not blocked": {"blocked": 0.2},
}
# A rate as even as a limit makes it, and a sign that it is one.
EVEN: dict[str, Any] = {"limit": None, "rate": 87.0, "spread": 0.03, "device": 0.5}

STORAGE_TABLES: dict[str, Table] = {
    "DAT010": Table(
        jobs.dat010,
        lines={
            **STARVED,
            "again": ({"again": 0.3}, {"again": 0.299}),
            "later": ({"later": 0.2}, {"later": 0.199}),
        },
        false_alarms={
            **NOT_STARVED,
            "later epochs come from memory": {"again": 0.02},
            "what was read was the first epoch's": {"later_reads": 0.01},
        },
        severities=(({"wait": 0.4}, "critical"), ({"wait": 0.2}, "high"), ({"wait": 0.1}, "medium")),
        best=({"wait": 0.4, "blocked": 0.9}, 1 / 0.6),
        also_fires={"the host itself is too small": {"host": 500.0, "group": None}},
    ),
    "DSK001": Table(
        jobs.dsk001,
        lines={
            **STARVED,
            "busy": ({"busy": 0.9}, {"busy": 0.899}),
            "queue": ({"queue": 2.0}, {"queue": 1.99}),
        },
        false_alarms={
            **NOT_STARVED,
            "one reader keeps a fast disk busy": {"queue": 1.0},
            "a limit before the disk": {"busy": 0.05, "queue": 0.1},
            "a network mount has no disk here": {"storage": NFS},
        },
        severities=waits("wait"),
        where=LINE,
        best=({"wait": 0.4}, warm(1 / 0.6)),
    ),
    "DSK002": Table(
        jobs.dsk002,
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
    ),
}
