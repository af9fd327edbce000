"""Seeded faults of machines with GPUs: recorded through the fake driver in place of a job, judged and shown as what they are."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from samples.faults.catalogue.devices import SCENARIOS
from samples.faults.results import RECORDED, cells, headline, read_json, write_json
from samples.faults.runner import Bench, run_scenario
from samples.faults.score import summarise
from samples.gpus.__main__ import BUILD

NAMED = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.usefixtures("fake_driver")
def test_a_recorded_fault_runs_like_any_other_and_says_what_it_is(tmp_path: Path) -> None:
    bench = Bench(tmp_path, keep=tmp_path / "kept")
    clear, hardly = (run_scenario(NAMED[name], bench) for name in ("recorded-data-parallel", "recorded-xid-hardly"))
    assert (clear.verdict, clear.right, clear.false_alarms) == ("COM005", True, ())
    assert hardly.right and hardly.verdict == "healthy"
    assert clear.first_s is None and clear.measured is None, "its seconds are made up: no speed-up, no first verdict"
    assert clear.steps > 100 and not clear.broken
    assert (tmp_path / "kept" / clear.scenario / "run.sqlite").exists()
    assert RECORDED in cells(clear)
    assert any("2 of these runs are no jobs" in line for line in headline(summarise([clear, hardly])))
    write_json(
        tmp_path / "results.json",
        [clear],
        {"cores": 1, "memory_gib": 1, "python": "", "torch": "", "kernel": "", "date": ""},
    )
    assert read_json(tmp_path / "results.json")[0].recorded


def test_without_a_compiler_there_is_no_driver_and_nothing_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert runpy.run_path(str(BUILD))["compiler"]() is None
    result = run_scenario(NAMED["recorded-sound-1xh200"], Bench(tmp_path))
    assert result.skipped == "no C compiler to build the fake driver with"
