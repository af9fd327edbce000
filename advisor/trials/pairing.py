"""Measures a change in pairs: the job with it against the job without, in turns or one after the other."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.trials.blocks import BlockSchedule, log_ratios
from rn50_advisor.advisor.trials.judgement import LOOKS
from rn50_advisor.advisor.trials.keeper import Keeper
from rn50_advisor.advisor.trials.progress import Progress, progress_of
from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed, TrialJob
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.documents.trial_documents import TrialFacts

TURN_S = 0.5  # equal jobs were 0.95 to 1.05 times as fast as one another in turns of half a second, 0.81 to 1.35 in turns of two seconds
WINDOW_S = 2.0  # of computing, the shortest that is compared
WINDOW_STEPS = 8
PROCESS_SD = 0.1
MANY_STARTS = LOOKS[1]
PAIRS_A_START = 4  # of the same two processes, where there is no time for so many starts
LONG_WINDOWS = 2  # windows that make one, where each pair has its own start: starting takes longer
SETTLING_TURNS = 2  # not measured: workers have filled their queues while the training process came to rest
WARM_STEPS = 10  # allocators, autotuning, first batches of workers
WARM_S = 2.0
FIRST_STEPS_WITHIN_S = 300.0
_LOOK_EVERY_S = 1.0  # for the first steps
_ROOM_EVERY_S = 5.0
ALONE_WINDOWS = 3  # of a run of its own
_TURNS_MAX = 3  # times as many turns as windows need without evaluations


class OutOfTime(Exception):
    """The time for this change is over."""


@dataclass(slots=True)
class TrialSide:
    """One of the two jobs, started again when it has come to its end. `rates`: work per second, window by window."""

    order: Order
    folder: Path
    keeper: Keeper | None = None
    has_room: Callable[[], bool] = lambda: True  # False once what jobs write leaves others too little of the disk
    rates: list[float] = field(default_factory=list)
    job: TrialJob | None = None
    starts: int = 0
    start_s: float = 0.0  # what the last start took
    earlier_told: list[list[TrialFacts | None]] = field(default_factory=list)  # see `told`, of earlier starts
    _begin_s: float = 0.0  # of the windows, on the clock of this job's training

    def start(self, deadline_s: float) -> Progress:
        """Starts it and lets it come to steady steps. Raises TrialFailed, or OutOfTime."""
        if self.job is not None:
            self.earlier_told.append(self._ranks_told())
        self.end()
        self.starts += 1
        self.job = TrialJob(self.order, self.folder.with_name(f"{self.folder.name}-{self.starts}"), self.keeper)
        began_s = time.monotonic()
        while True:
            goes_on = self.computes(_LOOK_EVERY_S, deadline_s)
            progress = self.progress()
            if progress is not None and progress.trained_s >= WARM_S:
                self._begin_s = progress.trained_s
                self.start_s = time.monotonic() - began_s
                return progress
            if not goes_on:
                raise TrialFailed("the job ended before it had made enough steps", self.job.last_words())
            if time.monotonic() - began_s > FIRST_STEPS_WITHIN_S:
                raise TrialFailed(f"no steady steps within {FIRST_STEPS_WITHIN_S:.0f} s", self.job.last_words())

    def computes(self, seconds: float, deadline_s: float) -> bool:
        """Lets the job compute for so long, and rest. Returns False if it has ended. Raises TrialFailed, or OutOfTime."""
        assert self.job is not None
        left_s = seconds
        try:
            while left_s > 0:
                if time.monotonic() > deadline_s:
                    raise OutOfTime
                if not self.has_room():
                    raise TrialFailed("what the job writes fills the disk", "set TMPDIR to a larger one")
                if not self.job.computes_for(min(left_s, _ROOM_EVERY_S)):
                    return False
                left_s -= _ROOM_EVERY_S
            return True
        finally:
            self.job.family.rest()

    def recording(self) -> Recording | None:
        """Of its last start."""
        return self.job.recording() if self.job else None

    def told(self) -> list[list[TrialFacts | None]]:
        """What became of the changes in each rank, start by start; None: the recorder was not in it."""
        return [*self.earlier_told, self._ranks_told()]

    def _ranks_told(self) -> list[TrialFacts | None]:
        recording = self.recording()
        ranks = [one.pid for one in recording.processes if one.role == "rank"] if recording else []
        return [recording.facts.get(pid, RankFacts()).get("trial") for pid in ranks] if recording else []

    def progress(self) -> Progress | None:
        recording = self.recording()
        return progress_of(recording, skip_steps=WARM_STEPS) if recording else None

    def resume_here(self) -> None:
        """Windows begin where it rests now; what was measured before is forgotten."""
        self.rates.clear()
        progress = self.progress()
        self._begin_s = progress.trained_s if progress else 0.0

    def measured(self, window_s: float) -> list[float]:
        """All windows so far, those of its earlier starts included."""
        progress = self.progress()
        return [*self.rates, *(progress.rates(self._begin_s, window_s) if progress else [])]

    def keep(self, window_s: float) -> None:
        """Before it is started again."""
        self.rates = self.measured(window_s)
        self._begin_s = math.inf

    def end(self) -> None:
        if self.job is not None:
            self.job.end()


@dataclass(frozen=True, slots=True)
class Turns:
    """Measures two jobs side by side: while one computes, every process of the other is stopped.

    Two processes of one job differ for as long as both live: of a ResNet18 against itself on two cores the logarithms were 0.18, 0.08, 0.05
    and -0.09, eight pairs each; of a small one with much loading 0.03. So both are started anew for each pair, and then the pairs show by
    themselves how far processes differ; with more than one pair a start they do not, and `shared_sd` stands for it.
    """

    pairs_a_start: int = 1

    @classmethod
    def within(cls, start_s: float, seconds: float) -> Turns:
        """As many starts as there is time for. `start_s`: what one of a job takes."""
        return cls(1 if 2.0 * start_s * MANY_STARTS <= seconds else PAIRS_A_START)

    def shared_sd(self, pairs: int) -> float:
        """What pairs of the same two processes have in common, as a standard deviation of so many pairs' mean."""
        return 0.0 if self.pairs_a_start == 1 else PROCESS_SD / math.sqrt(max(1, pairs // self.pairs_a_start))

    def __call__(self, base: TrialSide, changed: TrialSide, deadline_s: float) -> Iterator[list[float]]:
        """Yields the logarithms of the speed-up, pair by pair, at each look. `base` has been started, and rests.

        Raises TrialFailed, or OutOfTime.
        """
        pairs: list[float] = []
        while len(pairs) < LOOKS[-1]:
            if pairs:
                base.start(deadline_s)
            window_s = window_of(changed.start(deadline_s), base.progress())
            for side in (base, changed) * SETTLING_TURNS:
                _turn(side, window_s, deadline_s)
            for side in (base, changed):
                side.resume_here()
            if self.pairs_a_start == 1:
                window_s *= LONG_WINDOWS
            pairs += _some_pairs(base, changed, window_s, self.pairs_a_start, deadline_s)
            if len(pairs) in LOOKS:
                yield list(pairs)


def _some_pairs(base: TrialSide, changed: TrialSide, window_s: float, count: int, deadline_s: float) -> list[float]:
    """Of these two processes. Raises OutOfTime also if evaluations take nearly all of their time."""
    computed_s, due_s, found = 0.0, count * window_s, list[float]()
    while len(found) < count and computed_s < _TURNS_MAX * count * window_s:
        while computed_s < due_s:
            for side in (base, changed):
                _turn(side, window_s, deadline_s)
            computed_s += TURN_S
        found = _ratios(base.measured(window_s), changed.measured(window_s))
        due_s = computed_s + max(1, count - len(found)) * window_s
    if len(found) < count:
        raise OutOfTime
    return found[:count]


def _turn(side: TrialSide, window_s: float, deadline_s: float) -> None:
    if not side.computes(TURN_S, deadline_s):
        side.keep(window_s)
        side.start(deadline_s)


def one_after_the_other(base: TrialSide, changed: TrialSide, deadline_s: float) -> Iterator[list[float]]:
    """The same for jobs that cannot share the machine: each runs alone, in the order without, with, with, without.

    Raises TrialFailed, or OutOfTime.
    """
    pairs: list[float] = []
    while len(pairs) < LOOKS[-1]:
        first, second = (base, changed) if len(pairs) % 2 == 0 else (changed, base)
        rates = {id(side): _alone(side, deadline_s) for side in (first, second)}
        pairs.append(math.log(rates[id(changed)] / rates[id(base)]))
        if len(pairs) in LOOKS:
            yield list(pairs)


def _alone(side: TrialSide, deadline_s: float) -> float:
    """Work per second of a run of its own."""
    progress = side.start(deadline_s)
    window_s = window_of(progress)
    assert side.job is not None
    while len(rates := side.measured(window_s)) < ALONE_WINDOWS and side.computes(window_s, deadline_s):
        pass
    side.end()
    if not rates:
        raise TrialFailed("the job ended before it had made enough steps", side.job.last_words())
    return sum(rates) / len(rates)


def in_blocks(side: TrialSide, schedule: BlockSchedule, settling: int, deadline_s: float) -> Iterator[list[float]]:
    """The same in one job, which switches between itself and the change as `schedule` says. `settling`: steps left out after a switch.

    Raises TrialFailed, or OutOfTime.
    """
    before: list[float] = []  # of earlier starts
    progress = side.start(deadline_s)
    pairs: list[float] = []
    for look in LOOKS:
        while len(pairs) < look:
            goes_on = side.computes((look - len(pairs)) * 2 * schedule.block_steps * progress.step_s, deadline_s)
            recording = side.recording()
            found = log_ratios(recording, schedule, settling=settling).get(1, []) if recording else []
            pairs = [*before, *found]
            if not goes_on:
                before = pairs
                side.start(deadline_s)
        yield pairs


def schedule_of(step_s: float, settling: int) -> BlockSchedule:
    """Blocks without, with, with, without the change, each with enough steps beside those that are left out."""
    steps = max(WINDOW_STEPS, math.ceil(WINDOW_S / max(step_s, 1e-6))) + settling
    return BlockSchedule(max(WARM_STEPS, math.ceil(WARM_S / max(step_s, 1e-6))), steps, (0, 1, 1, 0))


def window_of(*progress: Progress | None) -> float:
    """Seconds of computing that are compared: some steps of the slower job."""
    return max(WINDOW_S, *(WINDOW_STEPS * one.step_s for one in progress if one is not None))


def _ratios(base: list[float], changed: list[float]) -> list[float]:
    return [math.log(b / a) for a, b in zip(base, changed, strict=False) if a > 0 and b > 0]
