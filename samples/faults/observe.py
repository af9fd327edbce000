"""Runs one job under the advisor, as a user would, and reads the recording. No process of the job is left when it returns."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from samples.faults.leftovers import OWNER, end_processes
from samples.faults.neighbours import NOBODY, Neighbours, between, read_ticks
from samples.faults.scenario import CannotBeMade, Conditions, Ending, Job, Recorded
from samples.gpus.__main__ import build_driver, recorder

SAMPLES = Path(__file__).resolve().parents[1]
START_RANKS = Path(__file__).with_name("start_ranks.py")
BIN = Path(sys.executable).parent  # the environment need not be activated
LIMIT_S = 280.0
HANG_LIMIT_S = 120.0
NAMED_FOR_S = 20.0  # from "not moving" to the report of a hang, for an idle job; ten minutes for a computing one
POLL_S = 2.0
GRACE_S = 60.0


class JobWentWrong(Exception):
    """The job did not end as its scenario says; the message holds the end of its output."""


@dataclass(frozen=True, slots=True)
class Observation:
    report: Mapping[str, Any]
    recording: Recording
    run: Path
    exit_code: int | None
    wall_s: float
    neighbours: Neighbours = NOBODY


def observe(job: Job, conditions: Conditions, folder: Path, *, ending: Ending = "finishes") -> Observation:
    """Runs the job and judges its recording. `folder` must not exist yet. Raises JobWentWrong."""
    folder.mkdir()
    (folder / "out").mkdir()
    start, before = time.monotonic(), read_ticks()
    with running(command(job, conditions, folder), job.environment, folder) as process:
        if ending == "hangs":
            found = _watch_hang(process, folder)
            return Observation(*found, run_folder(folder), None, time.monotonic() - start)
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise JobWentWrong(f"still running after {LIMIT_S:.0f} s{last_words(folder)}") from None
    wall_s, others = time.monotonic() - start, between(before, read_ticks())
    if code != (1 if ending == "fails" else 0):  # exit code of torchrun and Python when a rank has failed
        raise JobWentWrong(f"exit code {code}{last_words(folder)}")
    run = run_folder(folder)
    return Observation(*judged(run), run, code, wall_s, others)


def play(job: Recorded, driver: Path, folder: Path) -> Observation:
    """Records a story of a machine with GPUs through the fake driver, instead of running a job.

    Builds `driver` at its first use. Raises CannotBeMade if there is no compiler, JobWentWrong if nothing was recorded.
    """
    start = time.monotonic()
    if not driver.exists() and not build_driver(driver):
        raise CannotBeMade("no C compiler to build the fake driver with")
    try:
        with recorder(driver) as record:
            run = record(job.story, folder, **job.changes)
    except subprocess.CalledProcessError as error:
        raise JobWentWrong(f"the story {job.story} could not be recorded: exit code {error.returncode}") from None
    report, recording = judged(run)
    return Observation(report, recording, run, recording.meta.exit_code, time.monotonic() - start)


def judged(run: Path) -> tuple[dict[str, Any], Recording]:
    recording = read_recording(run)
    return diagnose(recording).as_json(), recording


def command(job: Job, conditions: Conditions, folder: Path) -> list[str]:
    """Returns the command line of the advisor and the job, with the fixtures' prefixes before each."""
    values = {**conditions.values, "out": str(folder / "out")}
    arguments = [argument.format_map(values) for argument in job.arguments]
    # when this process is killed, the advisor ends, and ends the job
    ends_with_us = ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []
    advisor = [*_advisor(), "run", "--no-tui", "--run-dir", str(folder / "runs"), "--"]
    script = str(SAMPLES / job.script)
    return [*ends_with_us, *conditions.container, *advisor, *conditions.prefix, *launcher(job), script, *arguments]


def _advisor() -> list[str]:
    """The installed command; if there is none, the module, which Python finds from a checkout's root."""
    script = BIN / "rn50-advisor"
    return [str(script)] if script.exists() else [sys.executable, "-m", "rn50_advisor.advisor.cli"]


def launcher(job: Job) -> list[str]:
    """Returns the command that starts the script: Python itself, or a launcher of ranks."""
    if not job.ranks:
        return [sys.executable]
    if job.start == "one by one":
        return [sys.executable, str(START_RANKS), str(job.ranks)]
    return [str(BIN / "torchrun"), "--standalone", f"--nproc_per_node={job.ranks}"]


def run_folder(folder: Path) -> Path:
    run = next(iter((folder / "runs").glob("*")), None)
    if run is None:
        raise JobWentWrong(f"nothing was recorded{last_words(folder)}")
    return run


@contextlib.contextmanager
def running(argv: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Runs the command in its own session: Ctrl-C reaches only this process, which then ends the job in order."""
    marked = {**os.environ, **environment, OWNER: str(os.getpid())}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            argv, env=marked, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            stop(process)
            end_processes(os.getpid())


def stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _watch_hang(process: subprocess.Popen[bytes], folder: Path) -> tuple[dict[str, Any], Recording]:
    """Reads reports of a hanging job until one says `failed` or time is up; returns the last. Raises JobWentWrong if the job ends."""
    deadline, named = time.monotonic() + HANG_LIMIT_S, False
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = process.wait(POLL_S)
            raise JobWentWrong(f"ended with {code} and should have hung{last_words(folder)}")
        if not any((folder / "runs").glob("*/run.sqlite")):
            continue
        report, recording = judged(run_folder(folder))
        if report["verdict"]["rule"] == "RUN001" and not named:
            named, deadline = True, min(deadline, time.monotonic() + NAMED_FOR_S)
        if report["verdict"]["state"] == "failed" or time.monotonic() > deadline:
            return report, recording


def last_words(folder: Path) -> str:
    lines = (folder / "output.txt").read_text(errors="replace").splitlines()
    return "".join(f"\n    {line}" for line in lines[-12:])
