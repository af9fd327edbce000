"""Seeded faults on small real jobs: each is told apart, on its rank and line, and nothing is blamed that is sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from samples.faults.catalogue import SCENARIOS
from samples.faults.runner import Bench, open_bench, run_scenario
from samples.faults.scenario import Scenario

pytestmark = pytest.mark.torch

FAST = [scenario for scenario in SCENARIOS if scenario.fast]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with open_bench(tmp_path_factory.mktemp("faults")) as bench:
        yield bench


@pytest.mark.parametrize("scenario", FAST, ids=lambda scenario: scenario.name)
def test_the_verdict_on_a_seeded_fault_is_right(scenario: Scenario, bench: Bench, tmp_path: Path) -> None:
    result = run_scenario(replace(scenario, remedy=None), replace(bench, keep=tmp_path))
    if result.skipped:
        pytest.skip(f"NOT TESTED here: {result.skipped}")
    if result.disturbed:
        pytest.skip("NOT TESTED here: the machine is busy with something else")
    assert not result.broken, result.broken
    assert result.right and not result.false_alarms, result
    assert result.right_place is not False, result
    assert result.first_s is not None, "the right verdict is there at the end, so there was a first time"
    if scenario.ending == "finishes":
        assert (result.attributed or 0.0) >= 0.95, result
