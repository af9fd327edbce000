"""Runs scenarios that mostly wait side by side: each in its own process, which cleans up after itself.

A job that walks an index for two minutes, or hangs, uses no core meanwhile. Several such jobs can run at once without slowing each other.
Nothing else runs at the same time.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from samples.faults.fixtures import ENDS_WITH_US
from samples.faults.results import read_json
from samples.faults.runner import Bench
from samples.faults.scenario import Scenario
from samples.faults.score import Result, unfinished

ROOT = Path(__file__).resolve().parents[2]
APART_S = 10.0  # between starts: by then a job of two ranks has loaded torch, trained a little, and waits
GRACE_S = 90.0  # to stop a job and undo its fixtures

Command = Callable[[Scenario, Bench, Path], list[str]]


def suite_of_one(scenario: Scenario, bench: Bench, json_file: Path) -> list[str]:
    # gets a signal when this process is killed, so that it undoes its fixtures
    tied = [ENDS_WITH_US[0], "--pdeathsig", "TERM"] if shutil.which(ENDS_WITH_US[0]) else []
    command = [*tied, sys.executable, "-m", "samples.faults", "--only", scenario.name, "--json", str(json_file)]
    command += ["--folder", str(bench.folder.parent)]
    return [*command, "--keep", str(bench.keep.resolve())] if bench.keep else command


def run_beside(
    scenarios: Sequence[Scenario],
    bench: Bench,
    repetition: int = 0,
    *,
    command: Command = suite_of_one,
    apart_s: float = APART_S,
) -> list[Result]:
    """Returns one result per scenario, in their order. The scenario that waits longest should come first."""
    files = [bench.folder / f"beside-{scenario.name}.json" for scenario in scenarios]
    started: list[subprocess.Popen[str]] = []
    try:
        for scenario, file in zip(scenarios, files, strict=True):
            if started:
                time.sleep(apart_s)
            started.append(_start(command(scenario, bench, file)))
        words = [process.communicate()[0] for process in started]
    finally:
        _end(started)
    found = [_read(scenario, file, said) for scenario, file, said in zip(scenarios, files, words, strict=True)]
    return [replace(result, repetition=repetition) for result in found]


def _start(command: list[str]) -> subprocess.Popen[str]:
    """Starts the command in its own session: Ctrl-C reaches only this process, which then ends the command in order."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _end(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Terminates all processes before waiting for any."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    for process in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=GRACE_S)
        process.kill()


def _read(scenario: Scenario, file: Path, said: str) -> Result:
    if file.exists():
        return read_json(file)[0]
    return unfinished(scenario, 0, f"no result: {' '.join(said.split()[-60:])}")
