"""Seeded faults on small real jobs: each is identified, with rank and line, and nothing healthy is blamed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from samples.faults.catalogue import SCENARIOS
from samples.faults.runner import Bench, open_bench, run_scenario
from samples.faults.scenario import Scenario

from first_views import FIRST_VIEW_SIZES, first_view, missing_of

# The job that hangs and the one that dies too: other tests are neighbours, and a finding about them counts as a false alarm.
pytestmark = [pytest.mark.torch, pytest.mark.alone]

HANGS_WITHIN_S = 45.0  # what is promised: looked at from 15 s on, a hang from 30 s on
FAST = [scenario for scenario in SCENARIOS if scenario.suite == "fast"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("faults")) as bench:
        yield bench


@pytest.mark.parametrize("scenario", FAST, ids=lambda scenario: scenario.name)
def test_the_verdict_on_a_seeded_fault_is_right(scenario: Scenario, bench: Bench, tmp_path: Path) -> None:
    """Right at once, or twice running after a wrong one: a shared machine is disturbed at times. RESULTS.md counts every flip."""
    first = what_is_wrong(scenario, bench, tmp_path)
    again = [what_is_wrong(scenario, bench, tmp_path) for _ in range(2)] if first else []
    assert not any(again), "\n".join([first, *again])


def what_is_wrong(scenario: Scenario, bench: Bench, folder: Path) -> str:
    """Empty where nothing is. Skips the test where the machine cannot do it, or somebody else used the machine."""
    result = run_scenario(replace(scenario, remedy=None), replace(bench, keep=folder))
    if result.skipped:
        pytest.skip(f"NOT TESTED here: {result.skipped}")
    if result.disturbed:
        pytest.skip("NOT TESTED here: the machine is busy with something else")
    faults = {
        result.broken: bool(result.broken),
        "wrong": not result.right,
        "false alarms": bool(result.false_alarms),
        "wrong place": result.right_place is False,
        # the right verdict is there at the end, so there was a first time
        "no first verdict": result.first_s is None,
        "a hang named late": scenario.ending == "hangs" and (result.first_s or 0.0) > HANGS_WITHIN_S,
        "not on the first view": result.right and missing_on_screen(folder / scenario.name) != [],
        "unattributed": scenario.ending == "finishes" and (result.attributed or 0.0) < 0.95,
    }
    found = [name for name, is_so in faults.items() if is_so]
    return f"{', '.join(found)}: {result}" if found else ""


def missing_on_screen(run: Path) -> list[str]:
    """What of a run's verdict does not stand on the first view, at each size: nothing of a healthy job."""
    found = []
    for size in FIRST_VIEW_SIZES:
        lines, report = asyncio.run(first_view(run, size))
        found += missing_of(lines, report) if report.verdict.rule else []
    return found
