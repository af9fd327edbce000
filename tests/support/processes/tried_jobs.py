"""Runs a script under the launcher with a request to its ranks, and reads from the run file what became of it. Not a test."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from launcher_harness import PYTHON, run_to_end
from rn50_advisor.advisor.store.run_reader import read_recording


class TriedJob(NamedTuple):
    """`facts`: by rank. `trials`: the `trial` of the facts, None without one."""

    out: str
    err: str
    facts: dict[int, Any]

    @property
    def trials(self) -> dict[int, Any]:
        return {rank: facts.get("trial") for rank, facts in self.facts.items()}


def tried(
    folder: Path, script: str, request: Mapping[str, Any] | None, *, launcher: Sequence[str] = (), **environment: str
) -> TriedJob:
    """`launcher`: modules and options before the script's name, as of torchrun. The script ends with 0."""
    folder.mkdir(exist_ok=True)
    (folder / "job.py").write_text(script)
    run = folder / "run"
    run.mkdir()
    done = run_to_end(
        run,
        [PYTHON, *launcher, str(folder / "job.py")],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        options={"trial": request, "host_probes": False, "stacks": False},
    )
    assert done.returncode == 0, done.stderr.decode()
    recording = read_recording(run)
    assert not [gap for gap in recording.gaps if "not written by any advisor" in gap.reason]
    facts = {values.get("rank", -1): values for values in recording.facts.values()}
    return TriedJob(done.stdout.decode(), done.stderr.decode(), facts)


def line_of(script: str, text: str) -> int:
    """The number of the only line with this text."""
    [number] = [number for number, line in enumerate(script.splitlines(), 1) if text in line]
    return number


def outcomes(trial: Mapping[str, Any]) -> tuple[dict[int, int], dict[int, str]]:
    """How often each change was made, and why others were refused, by index."""
    return dict(trial["applied"]), dict(trial["refused"])
