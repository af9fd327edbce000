"""Machines and their deviations in words: worse is negative, whichever way a number goes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rn50_advisor.advisor.model.documents.ranked_fleet import (
    Deviation,
    Difference,
    Fleet,
    FleetMachine,
    ResultFile,
)
from rn50_advisor.advisor.report.fleets import wording

COPIES = Deviation("memory.copy_gb_per_s", 12.0, "GB/s", 20.0, -0.4, -9.3, True)
SYNC = Deviation("disk.sync_ms", 9.0, "ms", 2.0, -3.5, -12.0, True)
SOUND = Deviation("decode.images_per_core_s", 410.0, "images/s", 400.0, 0.025, 0.3, False)
MACHINE = FleetMachine(
    "node17",
    "8 × A100-SXM",
    -12.0,
    True,
    "disk.sync_ms",
    (ResultFile("triage", "a.json", "keep"), ResultFile("triage", "b.json", "keep"), ResultFile("bench", "c.json")),
    (SYNC, COPIES, SOUND),
)


@pytest.mark.parametrize(
    ("machines", "title"),
    [
        ((), "0 machines, no outlier"),
        ((replace(MACHINE, outlier=False),), "1 machine, no outlier"),
        ((MACHINE, MACHINE, replace(MACHINE, outlier=False)), "3 machines, 2 outliers"),
    ],
)
def test_the_title_counts_machines_and_outliers(machines: tuple[FleetMachine, ...], title: str) -> None:
    assert wording.title(Fleet(machines, ())) == title


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (COPIES, "memory.copy_gb_per_s 12 GB/s, 40 % worse than 20 GB/s"),
        (SYNC, "disk.sync_ms 9, 4.5 times 2"),
        (replace(COPIES, deviation=None, baseline=0.0), "memory.copy_gb_per_s 12 GB/s, of the others 0 GB/s"),
        (
            Deviation("cpu.steal_share", 0.2, "share", 0.05, -3.0, -5.0, True),
            "cpu.steal_share 20 %, of the others 5.0 %",
        ),
    ],
)
def test_a_deviation_is_shown_beside_the_usual_value(one: Deviation, said: str) -> None:
    assert wording.deviating(one) == said


def test_an_outlier_is_described_by_its_deviations_and_flaws() -> None:
    assert wording.outlier(MACHINE) == (
        f"node17 (8 × A100-SXM): {wording.deviating(SYNC)}; {wording.deviating(COPIES)}"
    )
    flawed = replace(
        MACHINE, flaws=("7 GPUs, 8 on the others", "handed back"), differences=(Difference("driver", "550", "570"),)
    )
    assert wording.outlier(flawed) == (
        "node17 (8 × A100-SXM): 7 GPUs, 8 on the others; handed back; disk.sync_ms 9, 4.5 times 2; 1 more"
        "; driver is 550, 570 on the others"
    )


@pytest.mark.parametrize(
    ("deviation", "shown"), [(None, "–"), (-0.384, "−38 %"), (0.12, "+12 %"), (-0.004, "0 %"), (-3.5, "−350 %")]
)
def test_worse_has_a_minus(deviation: float | None, shown: str) -> None:
    assert wording.signed(replace(COPIES, deviation=deviation)) == shown


@pytest.mark.parametrize(("score", "shown"), [(-9.26, "−9.3"), (0.04, "0"), (-0.04, "0"), (1.0, "1.0")])
def test_a_score_near_nothing_is_nothing(score: float, shown: str) -> None:
    assert wording.score(score) == shown


def test_a_row_names_results_once_and_the_worst_component() -> None:
    assert wording.machine_row(MACHINE) == [
        *("▼ node17", "8 × A100-SXM", "−12.0", "triage keep, bench", "disk.sync_ms", "9", "2", "−350 %"),
    ]
    alike = wording.machine_row(replace(MACHINE, outlier=False, worst=None))
    assert alike[0] == "node17" and alike[4:] == ["", "–", "–", "–"]
    assert len(alike) == len(wording.MACHINE_COLUMNS)


def test_an_outlying_component_is_marked_with_a_word() -> None:
    assert wording.deviation_row(COPIES) == ["memory.copy_gb_per_s", "12 GB/s", "20 GB/s", "−40 %", "−9.3 outlier"]
    assert wording.deviation_row(SOUND)[-2:] == ["+2 %", "0.3"]
