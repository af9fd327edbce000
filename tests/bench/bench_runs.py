"""The jobs of the table, and one run of each: plain, under the advisor, or with TraceML's edits under TraceML."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sizes import SIZES, nominal_s

from rn50_advisor.advisor.store.run_reader import read_recording

HERE = Path(__file__).resolve().parent
RUN_S = 2.5
LEAST_STEPS = 12
HANDED_OVER_S = 0.003  # a batch takes 1 to 2 ms from a worker into the training process
WARM_UP = 0.1  # share of the steps that do not count
# In some processes glibc returns memory to the system in each step, in others not: equal runs differ by 1.2x.
KEPT_HEAP = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# Commands that start often run from compiled files, as an installed tool does.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", **KEPT_HEAP}
LIMIT_S = 300.0
TRIES = 2


class RunFailed(Exception):
    """The job, or the tool around it, failed twice."""


@dataclass(frozen=True, slots=True)
class BenchJob:
    size: str
    ranks: int
    workers: int

    @property
    def name(self) -> str:
        return f"{self.size}-{self.ranks}r-{self.workers}w"

    @property
    def title(self) -> str:
        ranks = f"{self.ranks} rank{'s' if self.ranks > 1 else ''}"
        return f"about {self.size.removesuffix('ms')} ms, {ranks}" + (f", {self.workers} workers" * bool(self.workers))

    def obstacle(self, cores: int) -> str:
        """Returns why this job would not measure the tool: too few cores for its processes, or a loader that cannot keep up; else ""."""
        if self.workers and nominal_s(self.size) < HANDED_OVER_S:
            return "workers hand over no faster than this"
        needed = self.ranks * max(1, self.workers)
        return f"needs {needed} cores" if needed > cores else ""

    def steps_in(self, seconds: float) -> int:
        return max(LEAST_STEPS, round(seconds / nominal_s(self.size)))


JOBS = tuple(BenchJob(size, ranks, workers) for ranks, workers, size in itertools.product((1, 2), (0, 2), SIZES))


@dataclass(frozen=True, slots=True)
class Own:
    """The advisor's own cost, as its run file says."""

    recorder_us: float | None  # in each step, as its report says
    agent_cpu_s: float
    agent_wall_s: float
    folder_bytes: int
    lost_records: int
    shed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One run."""

    step_s: float  # median
    steps: int
    start_s: float  # from the command to the end of the first step
    end_s: float  # from the end of the last step to the end of the command
    torch: str
    own: Own | None = None


def run_plainly(job: BenchJob, steps: int) -> Seen:
    with tempfile.TemporaryDirectory() as place:
        return _seen(*_timed(_plain(job, steps, Path(place)), Path(place)))


def run_watched(job: BenchJob, steps: int) -> Seen:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        timed = _timed(under_advisor(_plain(job, steps, folder), folder), folder)
        return _seen(*timed, own=_own(folder))


def run_under_traceml(job: BenchJob, steps: int, traceml: Path) -> Seen:
    """Runs the job in TraceML's summary mode, its default. TraceML replaces torchrun, even for one process."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        tool = [str(traceml), "run", f"--nproc-per-node={job.ranks}", f"--logs-dir={folder / 'logs'}"]
        script = [str(HERE / "steps_traceml.py"), "--args", *_arguments(job, steps, folder)]
        return _seen(*_timed([*tool, *script], folder))


def run_inside(script: str, job: BenchJob, pairs: int, events: str = "") -> dict[str, Any]:
    """Runs `switched.py` or `marks.py`, which compare steps of one process; returns what the script wrote."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        command = [*_launcher(job.ranks), str(HERE / script), f"--size={job.size}", f"--pairs={pairs}"]
        command += [f"--took={folder / 'took'}", *([f"--events={events}"] if events else [])]
        took, _, _ = _timed(under_advisor(command, folder), folder)
        return took


def under_advisor(command: Sequence[str], folder: Path) -> list[str]:
    tool = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", f"--run-dir={folder / 'runs'}"]
    return [*tool, f"--report={folder / 'report.json'}", "--", *command]


def find_traceml(command: str) -> Path | None:
    """Finds the command beside this interpreter, else on the PATH."""
    found = shutil.which(command, path=str(Path(sys.executable).parent)) or shutil.which(command)
    return Path(found).resolve() if found else None


def traceml_version(traceml: Path) -> str:
    ask = "from importlib.metadata import version; print(version('traceml-ai'))"
    return subprocess.run(
        [traceml.parent / "python", "-c", ask], capture_output=True, text=True, check=True
    ).stdout.strip()


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _plain(job: BenchJob, steps: int, folder: Path) -> list[str]:
    return [*_launcher(job.ranks), str(HERE / "steps.py"), *_arguments(job, steps, folder)]


def _launcher(ranks: int) -> list[str]:
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
    return [sys.executable, *(torchrun if ranks > 1 else ())]


def _arguments(job: BenchJob, steps: int, folder: Path) -> list[str]:
    return [f"--size={job.size}", f"--steps={steps}", f"--workers={job.workers}", f"--took={folder / 'took'}"]


def _timed(command: list[str], folder: Path) -> tuple[dict[str, Any], float, float]:
    """Returns (what the job wrote, begin and end of the command by the wall clock). Raises RunFailed."""
    for _ in range(TRIES):  # gloo sometimes aborts at exit
        shutil.rmtree(folder / "runs", ignore_errors=True)
        began = time.time()
        done = subprocess.run(
            command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        ended = time.time()
        if done.returncode == 0 and (folder / "took").exists():
            return json.loads((folder / "took").read_text()), began, ended
    raise RunFailed(f"{' '.join(command)}\nexit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}")


def _seen(took: dict[str, Any], began: float, ended: float, *, own: Own | None = None) -> Seen:
    step_ns = took["step_ns"]
    return Seen(
        step_s=statistics.median(step_ns[max(1, int(WARM_UP * len(step_ns))) :]) / 1e9,
        steps=len(step_ns),
        start_s=took["first_unix_s"] - began,
        end_s=ended - took["last_unix_s"],
        torch=took["torch"],
        own=own,
    )


def _own(folder: Path) -> Own:
    (run,) = (folder / "runs").iterdir()
    folder_bytes = sum(file.stat().st_size for file in run.rglob("*") if file.is_file())
    overhead = json.loads((folder / "report.json").read_text())["overhead"]
    agent = read_recording(run).meta.agent
    return Own(
        recorder_us=overhead["us_per_step"],
        agent_cpu_s=agent["cpu_s"],
        agent_wall_s=agent["wall_s"],
        folder_bytes=folder_bytes,
        lost_records=int(agent["lost_records"]),
        shed=tuple(overhead["shed"]),
    )
