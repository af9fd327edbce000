"""Runs one setting as a job of its own under the advisor, and reads the job's speed and the advisor's verdict."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from rn50_advisor.advisor.model.documents.benchmark import Cell, Options, Setting
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from rn50_advisor.advisor.model.report import Verdict
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.store.run_folders import resolve_run
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose

STRETCHES = 10
CONFIDENCE = 0.95


def rate_of(steps_s: Sequence[float], images: int, *, together: int = 1) -> Estimate:
    """Images/s from the times of single steps: the median over stretches of consecutive steps, with the interval of its order statistics.

    `images`: images of one step. Neighbouring steps are alike, so stretches are compared, not steps. `together`: loader
    workers that deliver together; a rush of steps then follows a wait, so stretches are whole rounds. Fewer than six
    stretches have no interval of 95 %: the interval is then their whole range. Raises ValueError without steps.
    """
    if not steps_s:
        raise ValueError("a rate of no steps")
    together = min(together, len(steps_s))
    rounds_s = np.reshape(steps_s[: len(steps_s) // together * together], (-1, together)).sum(axis=1)
    parts = [part for part in np.array_split(rounds_s, STRETCHES) if part.size]
    rates = sorted(float(images * together * part.size / part.sum()) for part in parts)
    rank = _rank(len(rates))
    return Estimate(float(np.median(rates)), rates[rank], rates[-1 - rank])


def _rank(count: int) -> int:
    """Returns how many values may be dropped at either end so that the rest still brackets the population's median (95 %)."""
    rank, outside = -1, 0.0
    for place in range(count // 2):
        outside += 2 * math.comb(count, place) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        rank = place
    return max(rank, 0)


TRAINER = Path(__file__).with_name("trainer.py")
# Not `-m torch.distributed.run`, which would put the working directory first in sys.path, and a user's `queue.py` with it.
_TORCHRUN = "import sys; sys.path[:] = filter(None, sys.path); from torch.distributed.run import main; main()"
_SUMMARY = re.compile(r"rn50-advisor [─-]{3}")  # first line of what `run` says at the end
_ERROR_LINES_MAX = 40  # last lines of a failed cell's output that are searched for the error
_ENDING_S = 30.0  # for a cell that is asked to end: the advisor writes its recording
_KILLED_FIRST = re.compile(r"Root Cause \(first observed failure\):(?:(?!exitcode).)*exitcode\s*: -9\b", re.DOTALL)
_OF_OTHER_LAUNCHERS = frozenset(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"))
# For the user's jobs: a cell that runs out of memory is no news to a channel, and what would send it takes time from what is measured.
_FOR_JOBS = frozenset(("RN50_ADVISOR_OTLP", "RN50_ADVISOR_NOTIFY"))


@dataclass(frozen=True, slots=True)
class Bench:
    """Settings that all cells share. `folder` holds their recordings, outputs and results."""

    folder: Path
    options: Options
    device: str
    python: str = sys.executable
    data: Path | None = None
    cores: float | None = None
    config: Config | None = None
    limit_s: float = 900.0

    def measure(self, setting: Setting) -> Cell:
        """Runs one cell. Does not raise if the cell fails; running out of memory is a result."""
        name = cell_name(setting)
        result = self.folder / f"{name}.json"
        where = ("--run-dir", str(self.folder), "--name", name)
        command = module_command(
            "rn50_advisor.advisor.cli", ["run", "--no-tui", *where, "--", *self.command(setting, result)]
        )
        ended = run_logged(command, self.folder / f"{name}.log", self._environment(setting), self.limit_s)
        measured = _read_result(result)
        verdict, shares, run = self._conclusion(name)
        if measured.get("state") == "oom":
            return Cell(setting, "oom", str(measured.get("why", "")), verdict=verdict, run=run)
        if ended or measured.get("state") != "measured":
            why = ended or "it ended without a result"
            log = self.folder / f"{name}.log"
            killed = why == "exit code 137" or rank_was_killed(log)  # 137: a shell's exit code for SIGKILL
            why = "killed, as the kernel does where memory ends" if killed else f"{why}: {_last_error(log)}"
            return Cell(setting, "oom" if killed else "failed", why, verdict=verdict, run=run)
        steps_s = [float(seconds) for seconds in measured["steps_s"]]
        return Cell(
            setting=setting,
            state="measured",
            images_per_s=rate_of(
                steps_s,
                setting.batch * setting.devices,
                together=max(1, self.options.workers) if setting.data == "real" else 1,
            ),
            step_s=sum(steps_s) / len(steps_s),
            steps=len(steps_s),
            memory_bytes=measured.get("memory_bytes"),
            verdict=verdict,
            shares=shares,
            run=run,
        )

    def probe(self) -> dict[str, Any]:
        """Returns the devices that torch sees. Raises AdvisorError if there is no torch."""
        result = self.folder / "probe.json"
        log = self.folder / "probe.log"
        command = [self.python, str(TRAINER), "--probe", "--result", str(result)]
        ended = run_logged(command, log, dict(os.environ), self.limit_s)
        found = _read_result(result)
        if ended or not found:
            raise AdvisorError(
                f"{self.python} cannot train here: {ended or 'no answer'}: {_last_error(log)}",
                "bench needs torch and torchvision; --python names an interpreter that has them",
            )
        return found

    def command(self, setting: Setting, result: Path) -> list[str]:
        """Returns the job's command line."""
        options = self.options
        started = [self.python]
        if setting.devices > 1:
            started += ["-c", _TORCHRUN, "--standalone", f"--nproc-per-node={setting.devices}"]
        given = {
            "result": result,
            "device": self.device,
            "model": options.model,
            "image-size": options.image_size,
            "classes": options.classes,
            "batch": setting.batch,
            "precision": setting.precision,
            "seconds": options.seconds,
            "limit": self.limit_s,
        }
        if setting.data == "real":
            given |= {"data": self.data, "workers": options.workers}
        layout = ["--channels-last"] if setting.channels_last else []
        return [*started, str(TRAINER), *layout, *(f"--{name}={value}" for name, value in given.items())]

    def _environment(self, setting: Setting) -> dict[str, str]:
        """Returns the job's environment. Several ranks on CPUs share the cores evenly, since torchrun would give each a single thread.

        A single rank keeps torch's own number of threads. Variables of another launcher are removed: if we are ourselves a rank of a
        larger job, as in a pod of several, the trainer would wait for its other ranks.
        """
        environment = {name: value for name, value in os.environ.items() if name not in _OF_OTHER_LAUNCHERS | _FOR_JOBS}
        if self.device == "cpu" and setting.devices > 1 and "OMP_NUM_THREADS" not in environment:
            cores = int(self.cores or os.cpu_count() or 1)
            environment["OMP_NUM_THREADS"] = str(max(1, cores // setting.devices))
        return environment

    def _conclusion(self, name: str) -> tuple[Verdict | None, Mapping[str, float], str]:
        try:
            path = resolve_run(name, self.folder)
            report = diagnose(read_recording(path), self.config)
        except NotARun:
            return None, {}, ""
        step_s = sum(report.budget.critical.values())
        shares = {phase: seconds / step_s for phase, seconds in report.budget.critical.items() if step_s > 0}
        return report.verdict, shares, path.name


def cell_name(setting: Setting) -> str:
    layout = "nhwc" if setting.channels_last else "nchw"
    return f"{setting.precision}-{layout}-b{setting.batch}-x{setting.devices}-{setting.data}"


def run_logged(command: list[str], log: Path, environment: dict[str, str], limit_s: float) -> str:
    """Runs a command with its output in a file. Returns how it failed, empty for exit code 0. Ctrl-C ends the child first."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            code = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(child)
            return f"timeout after {limit_s:.0f} s"
        except BaseException:
            _end(child)
            raise
    return "" if code == 0 else f"exit code {code if code >= 0 else 128 - code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """Sends SIGTERM, which the advisor passes to the job. Kills both if they ignore it, since the job would train on."""
    child.terminate()
    try:
        child.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        for process in _descendants(child.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        child.kill()
        child.wait()


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _read_result(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def rank_was_killed(log: Path) -> bool:
    """True if torchrun, which always exits with 1, reports that SIGKILL came first; it kills the other ranks itself."""
    try:
        return bool(_KILLED_FIRST.search(log.read_text(errors="replace")))
    except OSError:
        return False


def _last_error(log: Path) -> str:
    """Returns the last line of the job that names an error, else its last line. The advisor's own summary follows it."""
    try:
        lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    summary = max((n for n, line in enumerate(lines) if _SUMMARY.match(line)), default=len(lines))
    lines = lines[:summary][-_ERROR_LINES_MAX:]
    named = [line for line in lines if "Error" in line.split(":")[0] or line.startswith("train")]
    return (named or lines or [""])[-1][:300]
