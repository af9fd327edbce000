"""Runs scenarios one after the other: fixtures, job, verdict, and the job with the fix. Needs the machine to itself."""

from __future__ import annotations

import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.recorded_report import recorded_saving
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.run.rings.own_folder import OwnFolder, remove_tree
from rn50_advisor.advisor.store.schema import FILE_NAME
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.advisor.verdict.likely_gain import errors_of, expected
from samples.faults.first_verdict import first_right_verdict, pace_s, samples_per_s
from samples.faults.fixtures import NAME, Burners
from samples.faults.kept_verdicts import document
from samples.faults.leftovers import sweep
from samples.faults.neighbours import between, read_ticks
from samples.faults.observe import JobWentWrong, Observation, observe, play
from samples.faults.scenario import CannotBeMade, Conditions, Fixture, Job, Recorded, Remedy, Scenario, Untouched
from samples.faults.score import Result, attributed_share, blank, judge, unfinished
from samples.faults.turns import in_turns

RETRIES = 2
NEIGHBOURS, HYPERVISOR = "CPU003", "CPU002"  # other users of the machine; no scenario can create the latter
OTHERS_CORES = 0.25  # not counting a fault's own neighbours
STOLEN_SHARE = 0.02  # of the cores' time; CPU002 needs more to fire
# For jobs that are timed against themselves. Depending on chance at the start, malloc returns memory to the system in each step or not: the
# same job then takes 44 or 32 ms per step, and ranks differ by a fifth. Jobs that are only judged run as users start them.
STEADY_HEAP = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
# A run with the fix is reused for another scenario with the same job and circumstances within this time: the machine's speed has not
# changed by then. Over half an hour the same step varied from 28 to 40 ms.
SHARED_WITHIN_S = 180.0


class Interrupted(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP was received; everything is undone on the way out."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


@dataclass(frozen=True, slots=True)
class FixedRun:
    """An undisturbed run with the fix."""

    scenario: str
    repetition: int  # not shared between repetitions, because these measure chance
    job: Job | Recorded
    fixtures: tuple[Fixture, ...]
    seen: Observation
    ended_s: float  # monotonic clock


@dataclass(frozen=True, slots=True)
class Bench:
    """Folders for jobs: `folder` belongs to this process, images are beside it; runs are copied to `keep` if it is given.

    `verdicts`: documents of the right verdicts, by scenario; None: not wanted.
    """

    folder: Path
    keep: Path | None = None
    verdicts: dict[str, dict[str, Any]] | None = None
    fixed_runs: list[FixedRun] = field(default_factory=list)


@contextlib.contextmanager
def open_bench(
    base: Path, keep: Path | None = None, verdicts: dict[str, dict[str, Any]] | None = None
) -> Iterator[Bench]:
    """Removes what killed runs have left, then yields a bench. Ends in order on a signal."""
    base = base.resolve()
    base.mkdir(parents=True, exist_ok=True)
    sweep(base)
    with signals_as_exceptions():
        own = OwnFolder(base, NAME)
        try:
            yield Bench(own.path, keep, verdicts)
        finally:
            own.close(remove_tree)


@contextlib.contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Raises Interrupted on the first signal; later signals are ignored and do not disturb the clean-up."""
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def stop(signum: int, _frame: FrameType | None) -> None:
        for other in watched:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(signum)

    before = {signum: signal.signal(signum, stop) for signum in watched}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def run_scenario(scenario: Scenario, bench: Bench, repetition: int = 0) -> Result:
    result = blank(scenario, repetition)
    if bench.keep and repetition:
        bench = replace(bench, keep=bench.keep / f"repetition-{repetition}")
    try:
        seen, attempts = undisturbed(scenario, scenario.job, scenario.fixtures, bench)
    except CannotBeMade as reason:
        return replace(result, skipped=str(reason))
    except JobWentWrong as what:
        return unfinished(scenario, repetition, str(what))
    result = replace(describe(scenario, seen, result), attempts=attempts)
    if bench.verdicts is not None and result.right and seen.report["verdict"]["rule"]:
        bench.verdicts[scenario.name] = document(diagnose(seen.recording))
    if scenario.remedy is None:
        return result
    try:
        return measure_remedy(scenario, scenario.remedy, seen, result, bench)
    except (CannotBeMade, JobWentWrong) as what:
        return replace(result, broken=f"with the fix: {what}")


def describe(scenario: Scenario, seen: Observation, result: Result) -> Result:
    """Adds to `result` the verdict on what was seen, and the time until the first right verdict."""
    judgement = judge(scenario.truth, seen.report)
    findings = {finding["rule"] for finding in seen.report["findings"]}
    # silence is right from the start, and a made-up recording has no meaningful first seconds
    timed = judgement.right and not scenario.truth.never and not isinstance(scenario.job, Recorded)
    first = first_right_verdict(seen.recording, scenario.truth, scenario.onset_step) if timed else None
    return replace(
        result,
        verdict=judgement.verdict,
        ranks=judgement.ranks,
        right=judgement.right,
        why_not=judgement.why_not,
        false_alarms=judgement.false_alarms,
        right_place=judgement.right_place,
        told=tuple(rule for rule in result.noted if rule in findings),
        first_s=round(first.seconds, 1) if first else None,
        first_steps=first.steps if first else None,
        disturbed=disturbed(scenario.fixtures, seen),
        attributed=attributed_share(seen.report),
        steps=seen.report["step_time"]["steps"],
        step_s=seen.report["step_time"]["median_s"],
        wall_s=round(seen.wall_s, 1),
    )


def measure_remedy(scenario: Scenario, remedy: Remedy, before: Observation, result: Result, bench: Bench) -> Result:
    """Adds what was predicted, and what the advised change brought: in turns where nothing but the job changes, else in a run right after
    the first one.
    """
    predicted = promised(remedy, before) if result.right else None  # a prediction for another cause does not apply
    result = replace(
        result,
        predicted=predicted.speedup if predicted else None,
        likely=predicted.likely if predicted else None,
        bounds=predicted.bounds if predicted else None,
    )
    jobs = (scenario.job, remedy.job)
    if isinstance(jobs[0], Job) and isinstance(jobs[1], Job) and not scenario.fixtures and not remedy.fixtures:
        return measure_in_turns(scenario, jobs, result, bench)
    fixtures = scenario.fixtures if remedy.fixtures is None else remedy.fixtures
    after, owner = run_with_fix(scenario, remedy.job or scenario.job, fixtures, bench, repetition=result.repetition)
    both, onset = (before.recording, after.recording), scenario.onset_step
    timed = faster_by(both, onset)
    return replace(
        result,
        measured=round(timed * slower_by(both, remedy.untouched, onset), 3) if timed else None,
        timed=round(timed, 3) if timed else None,
        disturbed=result.disturbed or disturbed(fixtures, after),
        shared="" if owner == scenario.name else owner,
    )


def measure_in_turns(scenario: Scenario, jobs: Sequence[Job], result: Result, bench: Bench) -> Result:
    """Adds the gain measured in turns. Raises JobWentWrong."""
    steady = [replace(job, environment={**STEADY_HEAP, **job.environment}) for job in jobs]
    before = read_ticks()
    with tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as name:
        both = in_turns(steady, Conditions(), Path(name))
    others = between(before, read_ticks())
    timed = faster_by(both, scenario.onset_step)
    measured = round(timed, 3) if timed else None
    alone = others.cores <= OTHERS_CORES and others.stolen_share <= STOLEN_SHARE
    return replace(result, measured=measured, timed=measured, turns=True, disturbed=result.disturbed or not alone)


def faster_by(both: Sequence[Recording], onset_step: int) -> float | None:
    """Samples per second of the second run divided by those of the first; None if one has too few steps."""
    rates = [samples_per_s(recording, onset_step) for recording in both]
    return rates[1] / rates[0] if rates[0] and rates[1] else None


def promised(remedy: Remedy, before: Observation) -> Saving | None:
    """Returns the prediction for this remedy: the finding's own saving, or that of the advice that the remedy names."""
    root = root_of(before.report)
    if remedy.promise is None:
        return recorded_saving(root["saving"]) if root.get("saving") else None
    saving = remedy.promise(analyse(before.recording))
    return expected(saving, errors_of(root["rule"])) if saving else None


def slower_by(both: Sequence[Recording], untouched: Sequence[Untouched], onset_step: int) -> float:
    """Factor by which the machine was slower in the second run, from phases that are equal in both; 1 if unknown.

    A single-threaded step varied between 24 and 29 ms: means over some seconds differed by 3.9 % (standard deviation), processes that took
    turns by 1 %. In 31 pairs of runs, half a minute apart, the phases that no fix touched differed by -10 to +26 %. The correction also
    removes the effect of faults between steps on these phases: with the fault on and off in turns in one process, they got 1.6 to 3.2 %
    longer.
    """
    if not untouched:
        return 1.0
    first_s, second_s = (pace_s(recording, untouched, onset_step) for recording in both)
    return second_s / first_s if first_s and second_s else 1.0


def run_with_fix(
    scenario: Scenario, job: Job | Recorded, fixtures: tuple[Fixture, ...], bench: Bench, *, repetition: int
) -> tuple[Observation, str]:
    """Returns a run with the fix, and the name of its scenario. Reuses a recent run of the same job and circumstances."""
    bench.fixed_runs[:] = [one for one in bench.fixed_runs if time.monotonic() - one.ended_s <= SHARED_WITHIN_S]
    for one in bench.fixed_runs:
        if (one.job, one.fixtures, one.repetition) == (job, fixtures, repetition):
            return one.seen, one.scenario
    seen, _ = undisturbed(scenario, job, fixtures, bench, suffix="-fixed")
    if not disturbed(fixtures, seen):
        bench.fixed_runs.append(FixedRun(scenario.name, repetition, job, fixtures, seen, time.monotonic()))
    return seen, scenario.name


def undisturbed(
    scenario: Scenario, job: Job | Recorded, fixtures: tuple[Fixture, ...], bench: Bench, *, suffix: str = ""
) -> tuple[Observation, int]:
    """Runs the job until nobody else disturbs it, at most RETRIES + 1 times. Returns the last run and the number of attempts."""
    attempts = 0
    while True:
        attempts += 1
        with tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            if isinstance(job, Recorded):
                seen = play(job, bench.folder / "driver", folder)
            else:
                if scenario.remedy is not None:
                    job = replace(job, environment={**STEADY_HEAP, **job.environment})
                with held(fixtures, folder) as conditions:
                    seen = observe(job, conditions, folder / "job", ending="finishes" if suffix else scenario.ending)
            if bench.keep:
                bench.keep.mkdir(parents=True, exist_ok=True)
                target = bench.keep / f"{scenario.name}{suffix}"
                if (target / FILE_NAME).is_file():  # from an earlier attempt
                    shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(seen.run, target)
        if attempts > RETRIES or not disturbed(fixtures, seen):
            return seen, attempts


@contextlib.contextmanager
def held(fixtures: tuple[Fixture, ...], folder: Path) -> Iterator[Conditions]:
    """Holds all fixtures at once and undoes each in turn. Raises CannotBeMade before the job, never after it."""
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(fixture.hold(folder)) for fixture in fixtures]
        yield Conditions(
            container=tuple(word for part in parts for word in part.container),
            prefix=tuple(word for part in parts for word in part.prefix),
            values={name: value for part in parts for name, value in part.values.items()},
        )


def disturbed(fixtures: tuple[Fixture, ...], seen: Observation) -> bool:
    """True if processes other than the fixtures' neighbours took cores that the job needed: the advisor says so, and the kernel agrees.

    If the kernel disagrees, the finding counts as a false alarm; the run is not repeated until the finding disappears.
    """
    rules = {finding["rule"] for finding in seen.report["findings"]}
    seeded = sum(fixture.cores for fixture in fixtures if isinstance(fixture, Burners))
    stolen = HYPERVISOR in rules and seen.neighbours.stolen_share > STOLEN_SHARE
    return stolen or (NEIGHBOURS in rules and seen.neighbours.cores > seeded + OTHERS_CORES)


def root_of(report: Any) -> dict[str, Any]:
    return next((f for f in report["findings"] if f["rule"] == report["verdict"]["rule"]), {})
