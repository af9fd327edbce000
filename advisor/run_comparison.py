"""Compares several recordings; every output of `compare` shows the result. Pure: the same runs always give the same result."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50_advisor.advisor.analysis.compare.difference import (
    CONFIDENCE,
    drawn,
    phase_delta,
    ratio_beside_compute,
    speed_ratio,
)
from rn50_advisor.advisor.analysis.compare.pair_words import (
    DISTURBANCE_SHARE_MIN,
    OTHERS_CORES,
    disturbances,
    random_time,
    reasons,
    span,
)
from rn50_advisor.advisor.analysis.compare.run_settings import (
    changes,
    circumstances,
    other_device,
    other_job,
    other_model,
)
from rn50_advisor.advisor.analysis.compare.step_blocks import StepBlocks, step_blocks
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.comparison import (
    WHOLE_STEP,
    Change,
    Comparison,
    Estimate,
    FindingChange,
    Gate,
    Measure,
    Method,
    Pair,
    PhaseDelta,
    RunColumn,
)
from rn50_advisor.advisor.model.findings import SEVERITIES
from rn50_advisor.advisor.model.measures.host_measures import (
    CPU_ALLOWED_CORES,
    CPU_HOST_BUSY_CORES,
    CPU_OTHER_CORES,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_RUN_DELAY_S, STEP_SYSTEM_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import PHASES, Report
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.model.wording.quantities import percent
from rn50_advisor.advisor.verdict.diagnose import diagnose, of_a_recording

# Standard deviation of the mean step between runs of one unchanged job, as a share. Measured on two shared CPU cores, five runs each in two
# quiet minutes: 0.08 with one rank (0.06 without page faults), 0.04 with two; a little more over hours. On GPUs it is smaller; 0.02 is an
# assumption.
BETWEEN_RUNS = 0.05
BETWEEN_RUNS_GPU = 0.02
# The assumed spread counts as much as this many repeated runs, if repeated runs are given.
_ASSUMED_RUNS = 3
# Other processes take cores, and also caches, memory bandwidth and the core's other thread. This is the added spread, as a share of the
# step, if they keep all cores busy: jobs beside 1.3 busy cores of two took 1.4 to 1.8 times as long, without the waits for a core and
# page faults.
_NEIGHBOUR_FACTOR = 0.6
_CHANGE_SHARE_MIN = 0.01  # a change below 1 % is not a regression, however certain
_TELLS_NOTHING = 2.25  # ends of an interval: half as fast again and half as slow again are then both possible
_STEPS_MIN = 10  # steady steps: the mean of fewer is unreliable
_PHASE_SHOWN = 0.002  # of the step
_WORTH_FIXING = SEVERITIES[:3]
_COMPUTE_IS_ALIKE = "compute differs no more than between runs of the same job"


@dataclass(frozen=True, slots=True)
class Run:
    """One run, ready to be compared."""

    name: str
    report: Report
    analysis: Analysis
    blocks: StepBlocks | None
    draws: dict[str, Any]

    @property
    def work(self) -> float | None:
        """Samples of one step, all ranks together."""
        rate = self.report.throughput
        return rate.batch_size * rate.world_size if rate.batch_size else None


def load(name: str, recording: Recording, config: Config | None = None, *, place: int = 0) -> Run:
    """Analyses a recording. `place`: index of the run, used as the random seed so that equal runs draw differently. Raises NotARun."""
    with of_a_recording(recording):
        blocks = step_blocks(recording)
        draws = drawn(blocks, seed=place) if blocks is not None else {}
        return Run(name, diagnose(recording, config), analyse(recording), blocks, draws)


def compare(
    runs: Sequence[Run],
    *,
    repeated: Sequence[Run] = (),
    between_runs: float | None = None,
    max_regression: float | None = None,
) -> Comparison:
    """Compares runs with the first one. `repeated`: more runs of its job. `between_runs` and `max_regression` are shares, not percent."""
    usual, source = _between_runs(runs[0], repeated) if between_runs is None else (between_runs, "as given")
    noise = {id(run): math.hypot(usual, _NEIGHBOUR_FACTOR * _neighbours(run)) for run in runs}
    fewest = min(runs, key=lambda run: 1 << 30 if _unfit(run) or not run.work else run.report.throughput.world_size)

    def between(one: Run, other: Run) -> tuple[float, float]:
        return noise[id(one)], noise[id(other)]

    columns = tuple(replace(_column(r), efficiency=_efficiency(fewest, r, between(fewest, r))) for r in runs)
    pairs = tuple(_pair(runs[0], run, place, between(runs[0], run)) for place, run in enumerate(runs) if place)
    blocks = tuple(run.blocks.steps.size if run.blocks else 0 for run in runs)
    basis = (
        f"Block bootstrap, {percent(100 * CONFIDENCE)} interval; includes {percent(100 * usual)} between runs of the same job "
        f"({source}), more where other processes used CPU cores"
    )
    method = Method(CONFIDENCE, tuple(noise[id(run)] for run in runs), blocks, basis)
    return Comparison(0, columns, pairs, method, _gate(pairs, max_regression))


def _between_runs(base: Run, repeated: Sequence[Run]) -> tuple[float, str]:
    """Returns the standard deviation between runs of this job, and its source: assumed, or measured on repeated runs."""
    about: Mapping[str, Any] = next(iter(base.report.facts.values()), {})
    assumed = BETWEEN_RUNS_GPU if about.get("cuda") else BETWEEN_RUNS
    steps = [math.log(run.blocks.step_s) for run in (base, *repeated) if run.blocks]
    if len(steps) < 2:
        return assumed, "assumed"
    mean = sum(steps) / len(steps)
    spread = sum((value - mean) ** 2 for value in steps)
    share = math.sqrt((_ASSUMED_RUNS * assumed**2 + spread) / (_ASSUMED_RUNS + len(steps) - 1))
    return share, f"measured on {len(steps)} of them"


def _neighbours(run: Run) -> float:
    """Returns the share of the cores that other processes kept busy."""
    others, cores = run.analysis.get(CPU_OTHER_CORES) or 0.0, run.analysis.get(CPU_ALLOWED_CORES) or 0.0
    return min(1.0, others / cores) if others >= OTHERS_CORES and cores > 0 else 0.0


def _column(run: Run) -> RunColumn:
    report = run.report
    rate, step_s = report.throughput, run.blocks.step_s if run.blocks else None
    samples = run.work / step_s if run.work and step_s else None
    started = report.environment.get("started")
    return RunColumn(
        name=run.name,
        started=float(started) if isinstance(started, (int, float)) else None,
        argv=report.job.argv,
        ranks=report.job.ranks,
        samples_per_s=samples,
        samples_per_s_per_rank=samples / rate.world_size if samples else None,
        step_s=step_s,
        steady_steps=report.step_time.steady_steps,
        batch_size=rate.batch_size,
        verdict=report.verdict.state,
        rule=report.verdict.rule,
        title=report.verdict.title,
    )


def _efficiency(fewest: Run, run: Run, between_runs: tuple[float, float]) -> Estimate | None:
    """Returns samples/s per rank relative to the run with the fewest ranks; None for as many ranks, another model or other GPUs."""
    few, many = fewest.report.throughput.world_size, run.report.throughput.world_size
    if few == many or _unfit(fewest) or _unfit(run):
        return None
    if other_model(fewest.report, run.report) or other_device(fewest.report, run.report):
        return None
    if not (fewest.work and run.work and fewest.blocks and run.blocks):
        return None
    scale = (run.work / many) / (fewest.work / few)
    return speed_ratio(fewest.draws, run.draws, scale, between_runs=between_runs, spared_s=(0.0, 0.0))


def _pair(base: Run, other: Run, place: int, between_runs: tuple[float, float]) -> Pair:
    facts = changes(circumstances(base.report), circumstances(other.report))
    findings = _findings(base, other)
    if unfit := _unfit(base) or _unfit(other):
        return Pair(0, place, "unknown", None, None, unfit, (), facts, findings)
    assert base.blocks is not None and other.blocks is not None
    different = other_job(base.report, other.report)
    measure, scale = _measure(base, other)
    same_ranks = base.report.job.ranks == other.report.job.ranks
    if measure is None or (different and measure == "steps/s"):
        why = f"{different or 'the ranks are not as many'}, and samples were not counted"
        return Pair(0, place, "unknown", None, None, why, (), facts, findings)
    spared = (chance_s(base.analysis), chance_s(other.analysis)) if same_ranks and not different else (0.0, 0.0)
    speed = speed_ratio(base.draws, other.draws, scale, between_runs=between_runs, spared_s=spared)
    change = judge(speed)
    phases = () if different else _phases(base, other, between_runs)
    slower = (other if change == "regressed" else base).report
    why = reasons(change, phases, findings, slower.verdict.rule) if change != "same" else ""
    why = why or span(change, speed)
    if change == "same" and same_ranks and not different:
        more = [math.sqrt(max(0.0, share**2 - BETWEEN_RUNS**2)) for share in between_runs]
        beside = ratio_beside_compute(base.draws, other.draws, disturbed=(more[0], more[1]))
        # a change outside compute counts if it is certain and the whole step, without random costs, changes in the same direction
        whole = (base.blocks.step_s - spared[0]) / (other.blocks.step_s - spared[1])
        if judge(beside) != "same" and (beside.value < 1.0) == (whole < 1.0):
            change, speed = judge(beside), beside
            why = f"{span(change, beside)} by input, optimizer and the time between steps alone; {_COMPUTE_IS_ALIKE}"
    if change == "same" and speed.hi > _TELLS_NOTHING * speed.lo:
        change = "unknown"
        why = f"the runs vary too much to tell: {span(change, speed)}"
    notes = [
        *([f"{different}; compared by samples/s"] if different else []),
        *([f"different devices: {devices}"] if (devices := other_device(base.report, other.report)) else []),
        *disturbances([(base.name, base.analysis), (other.name, other.analysis)]),
    ]
    if abs(spared[1] - spared[0]) > DISTURBANCE_SHARE_MIN * base.blocks.step_s:
        notes.append(random_time(spared))
    return Pair(0, place, change, measure, speed, why, phases, facts, findings, tuple(dict.fromkeys(notes)))


def _unfit(run: Run) -> str:
    """Returns the reason why this run's mean is not usable; empty if it is."""
    steady, ranks, seen = run.report.step_time.steady_steps, run.report.job.ranks, run.report.throughput.world_size
    if run.blocks is None or steady < _STEPS_MIN:
        return f"{run.name} has {steady or 'no'} steady step{'s' if steady > 1 else ''}: too few to compare"
    return f"of {run.name} only {seen} of {ranks} ranks were recorded" if seen < ranks else ""


def _measure(base: Run, other: Run) -> tuple[Measure | None, float]:
    """Returns the quantity to compare, and the ratio of the work per step in the two runs."""
    if base.work and other.work:
        return "samples/s", other.work / base.work
    return ("steps/s", 1.0) if base.report.job.ranks == other.report.job.ranks else (None, 1.0)


def judge(speed: Estimate) -> Change:
    """Returns improved or regressed only if the interval excludes 1 and the change is at least 1 %; else same."""
    if not _worth(speed) or speed.lo <= 1.0 <= speed.hi:
        return "same"
    return "improved" if speed.lo > 1.0 else "regressed"


def _worth(speed: Estimate) -> bool:
    return abs(speed.value - 1.0) >= _CHANGE_SHARE_MIN


def chance_s(a: Analysis) -> float:
    """Seconds per step that depend on chance: kernel time for a heap that shrinks and grows, and waits for other processes.

    Whether malloc returns memory in each step depends on the heap's random layout: runs of one job take 32 or 44 ms per step.
    """
    faults = max(a.by_rank(STEP_SYSTEM_S).values(), default=0.0)
    others, busy = a.get(CPU_OTHER_CORES) or 0.0, a.get(CPU_HOST_BUSY_CORES) or 0.0
    delay = max(a.by_rank(STEP_RUN_DELAY_S).values(), default=0.0)
    return faults + (delay * min(1.0, others / busy) if others >= OTHERS_CORES and busy > 0 else 0.0)


def _phases(base: Run, other: Run, between_runs: tuple[float, float]) -> tuple[PhaseDelta, ...]:
    assert base.blocks is not None and other.blocks is not None
    found = []
    for phase in (*PHASES, WHOLE_STEP):
        if phase not in base.draws or phase not in other.draws:
            continue
        was, now = float(base.draws[phase].mean()), float(other.draws[phase].mean())
        if max(was, now) >= _PHASE_SHOWN * base.blocks.step_s:
            delta = phase_delta(base.draws[phase], other.draws[phase], between_runs=between_runs)
            found.append(PhaseDelta(phase, was, now, delta))
    return tuple(found)


def _findings(base: Run, other: Run) -> tuple[FindingChange, ...]:
    was = {f.rule: f for f in base.report.findings}
    now = {f.rule: f for f in other.report.findings}
    found = []
    for rule in dict.fromkeys([*was, *now]):
        old, new = was.get(rule), now.get(rule)
        if not any(f is not None and (f.fatal or f.severity in _WORTH_FIXING) for f in (old, new)):
            continue
        shown = new or old
        assert shown is not None
        found.append(
            FindingChange(
                rule,
                shown.title,
                "stays" if old and new else "appeared" if new else "gone",
                old.seconds_per_step if old else None,
                new.seconds_per_step if new else None,
            )
        )
    return tuple(found)


def _gate(pairs: Sequence[Pair], max_regression: float | None) -> Gate | None:
    if max_regression is None:
        return None
    slower = [p.other for p in pairs if p.change == "regressed" and p.speed and 1.0 - p.speed.value > max_regression]
    return Gate(max_regression, tuple(slower), tuple(p.other for p in pairs if p.change == "unknown"))
