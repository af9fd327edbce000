"""What no machine at hand can have: a story of machines with GPUs, recorded through the fake driver, in place of a job."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from samples.faults.observe import JobWentWrong, Observation
from samples.faults.scenario import CannotBeMade, Recorded
from samples.gpus.__main__ import build_driver, record_in_process


def play(job: Recorded, driver: Path, folder: Path) -> Observation:
    """`driver` is made at its first use. Raises CannotBeMade where there is no compiler for it, JobWentWrong where nothing was recorded."""
    began = time.monotonic()
    if not driver.exists() and not build_driver(driver):
        raise CannotBeMade("no C compiler to build the fake driver with")
    try:
        run = record_in_process(job.story, driver, folder, **job.changes)
    except subprocess.CalledProcessError as error:
        raise JobWentWrong(f"the story {job.story} could not be recorded: exit code {error.returncode}") from None
    recording = read_recording(run)
    report = diagnose(recording).as_json()
    return Observation(report, recording, run, recording.meta.exit_code, time.monotonic() - began)
