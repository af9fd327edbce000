"""Runs of whole machines, recorded through the fake driver: the verdict names what is wrong with each, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.core.report import Report
from advisor.diagnose import diagnose
from advisor.store.reader import read_recording
from samples.gpus.__main__ import ROOT, record_in_process
from samples.gpus.stories import STORIES

KEPT = sorted(name for name, story in STORIES.items() if story.replay)


def told(story: str, driver: Path, folder: Path, **changes: object) -> Report:
    return diagnose(read_recording(record_in_process(story, driver, folder, **changes)))


def extra(*lines: str) -> dict[str, object]:
    return {"extra": lines}


Line = tuple[str, str, dict[str, object], dict[str, object]]
OFF = {"NCCL_P2P_DISABLE": "1"}
# A story with nothing wrong and a fault just above its rule's line and just below it: rule, story, both.
LINES: list[Line] = [
    ("GPU001", "8xA100", extra("gpu 3 field.270 0 +25000000"), extra("gpu 3 field.270 0 +15000000")),
    (
        "GPU002",
        "2xRTX3090",
        extra("gpu 1 field.74 0 +120000000", "gpu 1 sm_clock 1900"),  # its peer: 2037
        extra("gpu 1 field.74 0 +120000000", "gpu 1 sm_clock 1960"),
    ),
    (
        "GPU002",
        "2xRTX3090",
        extra("gpu 1 field.74 0 +120000000", "gpu 1 power_limit_mw 330000"),
        extra("gpu 1 power_limit_mw 330000"),
    ),
    ("GPU003", "1xH200", {"memory_gb": 144}, {"memory_gb": 141}),
    ("GPU003", "1xH200", {"retry_every": 100}, {"retry_every": 0}),
    ("GPU004", "1xH200", {"memory_gb": 40, "creep_mb": 10}, {"memory_gb": 40, "creep_mb": 5}),
    ("GPU005", "4xL40S", {"strangers": ["2 9100 5000000 3"]}, {"strangers": ["2 9100 5000000 1"]}),
    ("GPU005", "4xL40S", {"strangers": ["2 9100 2600000000 0"]}, {"strangers": ["2 9100 2200000000 0"]}),
    ("GPU006", "4xL40S", extra("gpu 1 pcie_gen 3"), extra("gpu 1 pcie_width 14")),
    ("GPU007", "8xH100", extra("xid 5 63 after 10"), extra("xid 5 43 after 10")),
    ("GPU007", "8xH100", extra("gpu 5 field.4 7 +1"), extra("gpu 5 field.4 7")),
    ("GPU008", "8xA100", extra("gpu 6 nvlink.3 0 switch"), extra("gpu 6 nvlink.3 1 switch")),
    ("GPU008", "8xA100", extra("gpu 6 field.38 0 +600"), extra("gpu 6 field.38 0 +400")),  # each five seconds
    (
        "COM008",
        "4xL40S",
        {"variables": OFF, "wire_ms": 4.6},
        {"variables": OFF, "wire_ms": 2.5},
    ),
    ("CPU004", "4xL40S", {"cpus": {"2": "0-45,48-51"}}, {"cpus": {"2": "0-41,48-53"}}),
]


@pytest.mark.parametrize("line", LINES, ids=[f"{line[0]}-{n}" for n, line in enumerate(LINES)])
def test_each_line_holds_from_the_driver_to_the_finding(fake_driver: Path, tmp_path: Path, line: Line) -> None:
    rule, story, above, below = line
    fires, silent = (told(story, fake_driver, tmp_path / n, **case) for n, case in (("a", above), ("b", below)))
    assert rule in [finding.rule for finding in fires.findings]
    assert {row.rule: row.state for row in silent.outcomes}[rule] == "clear"


@pytest.mark.parametrize("story", STORIES)
def test_the_verdict_is_the_truth_of_the_story(fake_driver: Path, tmp_path: Path, story: str) -> None:
    report = told(story, fake_driver, tmp_path)
    assert (report.verdict.rule or report.verdict.state) == STORIES[story].truth, report.verdict
    assert not [row for row in report.outcomes if row.state == "crashed"]
    if STORIES[story].truth == "healthy" and not STORIES[story].cpus:
        assert report.findings == ()
    assert len(report.gpus) >= STORIES[story].ranks or story == "mismatch"


def test_a_hint_without_a_number_is_no_verdict(fake_driver: Path, tmp_path: Path) -> None:
    report = told("far-cpus", fake_driver, tmp_path)
    assert [finding.rule for finding in report.findings] == ["CPU004"]


def test_what_could_not_be_asked_is_not_called_clear(fake_driver: Path, tmp_path: Path) -> None:
    """A container may see clocks, their reasons and power, and nothing else."""
    states = {row.rule: row.state for row in told("restricted", fake_driver, tmp_path).outcomes}
    assert {states[rule] for rule in ("GPU005", "GPU007")} == {"not_measured"}
    blind = {row.rule: row.state for row in told("mismatch", fake_driver, tmp_path / "again").outcomes}
    assert {state for rule, state in blind.items() if rule.startswith("GPU") and rule not in ("GPU003", "GPU004")} == {
        "not_measured"
    }


def test_mig_gives_gaps_and_a_reason(fake_driver: Path, tmp_path: Path) -> None:
    report = told("MIG", fake_driver, tmp_path)
    (gap,) = [gap for gap in report.gaps if gap.metric == "gpu.util_pct"]
    assert gap.scope == "gpu:0" and "MIG" in gap.hint


def test_the_driver_is_named_in_the_environment(fake_driver: Path, tmp_path: Path) -> None:
    report = told("4xL40S", fake_driver, tmp_path)
    assert report.environment["driver"] == "550.54.15"
    assert [gpu["name"] for gpu in report.environment["gpus"]] == ["NVIDIA L40S"] * 4


@pytest.mark.parametrize("story", KEPT)
def test_the_runs_kept_for_replay_still_tell_their_story(story: str) -> None:
    bundle = ROOT / "samples" / "runs" / f"{story}.tar.gz"
    assert bundle.stat().st_size < 300_000
    verdict = diagnose(read_recording(bundle)).verdict
    assert (verdict.rule or verdict.state) == STORIES[story].truth
