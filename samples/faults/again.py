"""Judges kept runs anew, by the rules as they are now: what was measured of jobs and of their fixes stays."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from samples.faults.observe import Observation
from samples.faults.results import advisor_state
from samples.faults.runner import blank, describe, promised
from samples.faults.scenario import Scenario
from samples.faults.score import Result


def judged_again(scenario: Scenario, result: Result, keep: Path) -> Result:
    """`keep`: what a call with --keep left. As it was, where that holds no run of it, or one that was judged while it hung."""
    folder = keep / (f"repetition-{result.repetition}" if result.repetition else "") / scenario.name
    if result.skipped or result.broken or scenario.ending == "hangs" or not (folder / "run.sqlite").exists():
        return result
    recording = read_recording(folder)
    seen = Observation(diagnose(recording).as_json(), recording, folder, None, result.wall_s)
    fresh = describe(scenario, seen, blank(scenario, result.repetition))
    known = replace(
        fresh,
        measured=result.measured,
        timed=result.timed,
        shared=result.shared,
        disturbed=result.disturbed,
        attempts=result.attempts,
        took_s=result.took_s,
        machine=result.machine,
        date=result.date,
        advisor=advisor_state(),
    )
    if scenario.remedy is None or result.measured is None or not fresh.right:
        return known
    return replace(known, predicted=promised(scenario.remedy, seen))
