"""The validation of `try` on seeded faults: jobs against themselves, the right fix, and what editing the file brings."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from samples.faults import tried
from samples.faults.scenario import Job, fault

from rn50_advisor.advisor.model.trials import MeasuredSpeedup, Trial, Tried
from rn50_advisor.advisor.trials import pairing
from simulated_trials import Nature, SimulatedJob, simulation

SLOW, FAST = Job("job.py", ("--slow", "--steps=50")), Job("job.py", ("--steps=50",))
SEED = fault("slow-data", "DAT003", SLOW, fixed=FAST)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., type[SimulatedJob]]:
    def of(**natures: Nature) -> type[SimulatedJob]:
        jobs = simulation(**natures)
        monkeypatch.setattr(pairing, "TrialJob", jobs)
        monkeypatch.setattr(tried, "command", lambda job, folder: ["slow" if job is SLOW else "fast"])
        return jobs

    return of


def test_a_job_is_measured_against_itself_by_switches_and_by_restarts(
    tmp_path: Path, simulated: Callable[..., type[SimulatedJob]]
) -> None:
    jobs = simulated(slow=Nature(step_ms=100))
    found = tried.measured_against_itself(SEED, 1e9, tmp_path)
    assert {way: one and one.outcome for way, one in found.items()} == {"live": "no_gain", "restart": "no_gain"}
    assert "slow switched" in jobs.started
    assert tried.measured_against_itself(SEED, -1.0, tmp_path) == {"live": None, "restart": None}


def test_a_row_compares_the_trial_with_the_edited_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, simulated: Callable[..., type[SimulatedJob]]
) -> None:
    simulated(slow=Nature(step_ms=200), fast=Nature(step_ms=100))
    trials = (Trial("DAT003", "", "num_workers=2", outcome="faster", measured=MeasuredSpeedup(2.0, 1.9, 2.1, 8)),)

    class Trying:
        def __init__(self, *_: object) -> None:
            pass

        def run(self) -> Tried:
            return Tried(trials, ("slow",), 10.0, None, 60.0, ())

    monkeypatch.setattr(tried, "Trying", Trying)
    row = tried.try_scenario(SEED, 60.0, tmp_path)
    assert (row.verdict, row.right, row.inside) == ("DAT003", True, True)
    assert row.edited is not None
    assert row.edited.speedup == pytest.approx(2.0, rel=0.02)


def test_the_command_is_the_seeds_own_and_long_enough(tmp_path: Path) -> None:
    long = tried.command(Job("faults/jobs/ranks/buffers.py"), tmp_path)
    assert long[-1] == "--steps=100000", "though the seed leaves it at its default"
    assert long[0] == sys.executable


def test_what_was_tried_is_summed_up_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = tried.Row("in-process-one-rank", ("DAT003",), "DAT003", None, None, 1.0)
    monkeypatch.setattr(tried, "try_scenario", lambda *_: row)
    file = tmp_path / "rows.json"
    done = CliRunner().invoke(tried.main, ["--only", "in-process-one-rank", "--json", str(file)])
    assert done.exit_code == 0 and "1 of 1 right, 0 of 0 inside" in done.output
    assert json.loads(file.read_text())["verdict"] == "DAT003"


@pytest.mark.parametrize(
    ("knob", "arguments"),
    [
        (
            "DataLoader(..., num_workers=2, persistent_workers=True)",
            ("--slow", "--steps=50", "--workers=2", "--persistent"),
        ),
        ("DataLoader(..., num_workers=0)", ("--slow", "--steps=50", "--workers=0")),
        ("DataLoader(..., persistent_workers=True)", FAST.arguments),
        ("torch.set_num_threads(2)", FAST.arguments),
        ("", FAST.arguments),
    ],
)
def test_the_edited_file_has_as_many_workers_as_were_tried(knob: str, arguments: tuple[str, ...]) -> None:
    assert tried.as_advised(SLOW, FAST, knob).arguments == arguments
