"""Tries the advised changes of a job, one after the other, and the winners together."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psutil

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Applied, MeasuredSpeedup, Trial, Tried
from rn50_advisor.advisor.model.wording.quantities import ratio
from rn50_advisor.advisor.trials.blocks import BlockSchedule, settling_steps
from rn50_advisor.advisor.trials.candidates import FixCandidate, candidates
from rn50_advisor.advisor.trials.containment import Containment
from rn50_advisor.advisor.trials.judgement import LOOKS, PairJudgement, judge
from rn50_advisor.advisor.trials.keeper import Keeper
from rn50_advisor.advisor.trials.pairing import (
    WARM_STEPS,
    OutOfTime,
    TrialSide,
    Turns,
    in_blocks,
    one_after_the_other,
    schedule_of,
)
from rn50_advisor.advisor.trials.progress import progress_of
from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed

Measure = Callable[[TrialSide, TrialSide, float], Iterator[list[float]]]
# Free memory that a second job at the same time wants, as a share of what the first one uses: its own, and some for growth.
_ROOM = 1.3
_VERDICT_SHARE = 0.4  # of the budget, at most, until the job's own verdict is known
_VERDICT_EVERY_S = 5.0
_VERDICT_AFTER_S = 20.0  # of computing: by then nearly all seeded faults have their verdict
_FULL_GPU = 0.9  # of its memory
_TOO_LITTLE_S = 10.0  # a job does not even start in it
_PREFETCH = 2  # batches a worker, torch's default
ALLOW_WRITES = "--allow-writes lets trials write as the job always does"
UNCONTAINED = "what trials wrote was not held back: the job wrote as it always does"


@dataclass(frozen=True, slots=True)
class Settings:
    """What `try` was asked for. `folder`: where jobs' runs and output go; `containment` None: jobs write as they always do."""

    argv: tuple[str, ...]
    folder: Path
    budget_s: float
    containment: Containment | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # of the job, besides our own
    rules: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Blocks:
    """Measures in one job that switches. `settling`: steps left out after a switch."""

    schedule: BlockSchedule
    settling: int

    def __call__(self, base: TrialSide, side: TrialSide, deadline_s: float) -> Iterator[list[float]]:
        return in_blocks(side, self.schedule, self.settling, deadline_s)


class Trying:
    """One call of `try`. `tell` gets a line for people at each turn of events; `diagnose` makes the report of a recording."""

    def __init__(
        self, settings: Settings, diagnose: Callable[[Recording], Report], tell: Callable[[str], None]
    ) -> None:
        self._settings = settings
        self._diagnose = diagnose
        self._tell = tell
        self._began_s = time.monotonic()
        self._deadline_s = self._began_s + settings.budget_s
        self._keeper: Keeper | None = None
        self.torch = ""  # version, as the ranks tell it
        self.device = "CPU"  # what trains
        self._alone = ""  # why two jobs cannot share the machine; empty: they can

    def run(self, report: Report | None = None) -> Tried:
        """Tries the fixes of `report`, or of what the job itself shows. Raises AdvisorError if the job cannot be tried."""
        self._keeper = Keeper()
        self._base = self._side("without", ())
        try:
            self._tell("starting the job as it is")
            self._start_base()
            verdict = self._verdict(look_once=report is not None)
            refuse_full_gpus(verdict)
            report = report or verdict
            samples_per_s = self._samples_per_s()
            self.torch = self._torch_version()
            self.device = next((gpu.name for gpu in report.gpus if gpu.ranks), self.device)
            self._alone = self._why_alone()
            if self._alone:
                self._base.end()
            chosen, refused = candidates(report, self._settings.rules)
            trials = []
            for number, candidate in enumerate(chosen):
                left_s = self._deadline_s - time.monotonic()
                trials.append(self._try(candidate, left_s / (len(chosen) - number), len(chosen)))
            winners = [c for c, trial in zip(chosen, trials, strict=True) if trial.outcome == "faster"]
            together = self._together(winners) if len(winners) > 1 else None
        except OutOfTime:
            raise AdvisorError(
                f"the job made no steady steps within {self._settings.budget_s:.0f} s", "give it more: --budget 20m"
            ) from None
        finally:
            self._base.end()
            self._keeper.close()
        took_s = time.monotonic() - self._began_s
        contained = self._settings.containment
        notes = [*(contained.notes() if contained else (UNCONTAINED,))]
        if self._alone:
            notes.append(f"jobs ran one after the other: {self._alone}")
        return Tried((*trials, *refused), self._settings.argv, samples_per_s, together, took_s, tuple(notes))

    def _side(self, name: str, chosen: Sequence[FixCandidate], schedule: BlockSchedule | None = None) -> TrialSide:
        """The job with these changes, or, by a schedule, with and without. Raises ValueError if they do not fit its command line."""
        contained = self._settings.containment
        argv: Sequence[str] = self._settings.argv
        environment: dict[str, str | None] = dict(self._settings.environment)
        for candidate in chosen:
            argv = candidate.knob.argv(argv)
            environment |= candidate.knob.environment
        if contained is not None:
            environment = contained.environment({**os.environ, **self._settings.environment}) | environment
            argv = contained.command(argv)
        request: dict[str, Any] = {"changes": [], "live": None}
        if schedule is not None:
            switched = [change for candidate in chosen for change in candidate.knob.switched]
            request["live"] = {"variants": [[], switched], **asdict(schedule)}
        else:
            request["changes"] = [change for candidate in chosen for change in candidate.knob.changes]
        order = Order(tuple(argv), environment, request)
        side = TrialSide(order, self._settings.folder / name, self._keeper)
        if contained is not None:
            side.has_room = contained.has_room
        return side

    def _start_base(self) -> None:
        """Raises AdvisorError if the job fails by itself, or could not be contained; OutOfTime."""
        try:
            self._base.start(self._deadline_s)
        except TrialFailed as error:
            if why := self._uncontained():
                raise AdvisorError(f"the job could not be contained: {why}", ALLOW_WRITES) from error
            raise TrialFailed(f"without any change {error.message}", error.hint) from error

    def _verdict(self, *, look_once: bool) -> Report:
        """Lets the job go on until its findings stay as they are, or a good part of the time is over, unless its advice is known by now."""
        until_s = self._began_s + _VERDICT_SHARE * self._settings.budget_s
        computed_s, before = 0.0, None
        while True:
            recording = self._base.recording()
            assert recording is not None
            report = self._diagnose(recording)
            if look_once:
                return report
            found = report.verdict.state, {finding.rule for finding in report.findings}
            settled = found == before and computed_s >= _VERDICT_AFTER_S and found[0] in ("bottleneck", "healthy")
            if settled or time.monotonic() > until_s or not self._base.computes(_VERDICT_EVERY_S, self._deadline_s):
                self._tell(f"its verdict: {report.verdict.title}")
                return report
            computed_s, before = computed_s + _VERDICT_EVERY_S, found

    def _uncontained(self) -> str:
        """Why a job was not started in its containment; empty: it was."""
        contained = self._settings.containment
        return next(contained.failures(), "") if contained is not None else ""

    def _samples_per_s(self) -> float | None:
        progress = self._base.progress()
        if progress is None or not progress.in_samples:
            return None
        return sum(float(rank.work[-1] / rank.seconds[-1]) for rank in progress.ranks)

    def _torch_version(self) -> str:
        recording = self._base.recording()
        return next((facts.get("torch") or "" for facts in recording.facts.values()), "") if recording else ""

    def _why_alone(self) -> str:
        assert self._base.job is not None
        recording = self._base.recording()
        if recording is not None and any(facts.get("cuda") is not None for facts in recording.facts.values()):
            return "a GPU that waits for a stopped process is not free for the other"
        used = self._base.job.family.memory_bytes()
        if psutil.virtual_memory().available < _ROOM * used:
            return f"there is no memory for two of them ({used / 1e9:.1f} GB each)"
        return ""

    # -- one change ------------------------------------------------------------------------------------------------------------

    def _try(self, candidate: FixCandidate, within_s: float, comparisons: int) -> Trial:
        """By switches in one job if the change and the job allow it: two processes of one job differ by more. Else by restarts."""
        ways: tuple[Applied, ...] = ("live", "restart") if candidate.knob.can_switch else ("restart",)
        until_s = time.monotonic() + within_s
        if within_s < _TOO_LITTLE_S:
            return candidate.trial(outcome="undecided", reason="the time was over: give it more with --budget")
        for way in ways:
            trial = self._try_so(candidate, way, until_s - time.monotonic(), comparisons)
            if trial.outcome != "refused":
                break
        return trial

    def _try_so(self, candidate: FixCandidate, way: Applied, within_s: float, comparisons: int) -> Trial:
        name = candidate.finding.rule
        blocks = self._blocks([candidate]) if way == "live" else None
        try:
            side = self._side(f"{name}-{way}", [candidate], blocks.schedule if blocks else None)
        except ValueError as error:
            return candidate.trial(outcome="refused", reason=str(error))
        self._tell(f"{name} {candidate.knob.name}: starting the job with it")
        asked = side, min(self._deadline_s, time.monotonic() + within_s), comparisons, name
        try:
            judgement = self._judged(blocks, *asked) if blocks else self._by_restart(*asked)
        except TrialFailed as error:
            uncontained = self._uncontained()
            failed = f"{error.message} with it: {_last_line(error)}".rstrip(": ")
            why = f"the job could not be contained: {uncontained}" if uncontained else failed
            return candidate.trial(outcome="refused", reason=why)
        finally:
            side.end()
            if self._settings.containment is not None:
                self._settings.containment.clear()
        if judgement is None:
            return candidate.trial(outcome="undecided", reason=f"no {LOOKS[0]} pairs of runs fit into {within_s:.0f} s")
        if why_not := self._not_applied(side):
            return candidate.trial(outcome="refused", reason=why_not)
        measured = judgement.measured
        return candidate.trial(outcome=judgement.outcome, reason=judgement.reason, measured=measured, applied=way)

    def _blocks(self, chosen: Sequence[FixCandidate]) -> Blocks:
        recording = self._base.recording()
        progress = progress_of(recording, skip_steps=WARM_STEPS) if recording else None
        loaders = [one for facts in recording.facts.values() for one in facts.get("loaders", ())] if recording else []
        prefetched = [_prefetched(one) for one in (*loaders, *_new_arguments(chosen))]
        settling = settling_steps(max(prefetched, default=0), 1)
        return Blocks(schedule_of(progress.step_s if progress else 1.0, settling), settling)

    def _by_restart(self, side: TrialSide, deadline_s: float, comparisons: int, name: str) -> PairJudgement | None:
        """In turns if two of the jobs can run at the same time: they may want the same port. Raises TrialFailed."""
        asked = side, deadline_s, comparisons, name
        if self._alone:
            return self._judged(one_after_the_other, *asked)
        try:
            return self._judged(Turns.within(self._base.start_s, deadline_s - time.monotonic()), *asked)
        except TrialFailed as error:
            if side.progress() is not None:
                raise
            why = _last_line(error)
        self._base.end()
        try:
            judgement = self._judged(one_after_the_other, *asked)
        except TrialFailed:
            with contextlib.suppress(OutOfTime):
                self._base.start(self._deadline_s)
            raise
        self._alone = f"two of them cannot run at the same time: {why}"
        return judgement

    def _judged(
        self, measure: Measure, side: TrialSide, deadline_s: float, comparisons: int, name: str
    ) -> PairJudgement | None:
        """The answer, or None if there was no time for enough pairs. Raises TrialFailed."""
        judgement = None
        with contextlib.suppress(OutOfTime):
            for ratios in measure(self._base, side, deadline_s):
                shared = measure.shared_sd(len(ratios)) if isinstance(measure, Turns) else 0.0
                judgement = judge(ratios, comparisons=comparisons, shared_sd=shared)
                self._tell(f"{name}: {len(ratios)} pairs, {_words(judgement.measured)}")
                if not judgement.go_on or self._not_applied(side):
                    break
        return judgement

    def _not_applied(self, side: TrialSide) -> str:
        """Why a rank did not make the change; empty: all of them made it, in one of the job's starts."""
        starts = [start for start in side.told() if start]
        for told in (told for start in starts for told in start):
            if told is None:
                return "the recorder was not in the job"
            if told["refused"]:
                return f"it could not be applied: {told['refused'][0][1]}"
        made = any(all(times for told in start if told for _, times in told["applied"]) for start in starts)
        return "" if made or not starts else "the job never came to what it changes"

    def _together(self, winners: Sequence[FixCandidate]) -> MeasuredSpeedup | None:
        """By switches if all of them allow it."""
        blocks = self._blocks(winners) if all(winner.knob.can_switch for winner in winners) else None
        for way in (blocks, None) if blocks else (None,):
            side = self._side("together-live" if way else "together", winners, way.schedule if way else None)
            asked = side, self._deadline_s, 1, "all together"
            try:
                judgement = self._judged(way, *asked) if way else self._by_restart(*asked)
            except TrialFailed:
                continue
            finally:
                side.end()
            if judgement is not None and not self._not_applied(side):
                return judgement.measured
        return None


def refuse_full_gpus(report: Report) -> None:
    """Raises AdvisorError if a GPU of the job has no room for a change that needs more memory."""
    for gpu in report.gpus:
        used = (gpu.mem_used_bytes or 0.0) / (gpu.mem_total_bytes or math.inf)
        if gpu.ranks and used >= _FULL_GPU:
            raise AdvisorError(
                f"{100.0 * used:.0f} % of the memory of GPU {gpu.place or gpu.index} is in use: a trial could run out of it",
                "try the job with a smaller batch",
            )


def _prefetched(loader: Mapping[str, Any]) -> int:
    """Batches that its workers keep ready."""
    return (loader.get("num_workers") or 0) * (loader.get("prefetch_factor") or _PREFETCH)


def _new_arguments(chosen: Sequence[FixCandidate]) -> list[Mapping[str, Any]]:
    changes = [change for candidate in chosen for change in candidate.knob.changes]
    return [change["arguments"] for change in changes if change["kind"] == "call"]


def _last_line(error: AdvisorError) -> str:
    return error.hint.rpartition("\n")[2]


def _words(measured: MeasuredSpeedup | None) -> str:
    return f"{ratio(measured.speedup)} ({ratio(measured.lo)} to {ratio(measured.hi)})" if measured else "too few"
