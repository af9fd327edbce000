"""Samples stacks of ranks that are outside the model, where no mark explains their time, that sleep inside it, or that make batches. All
that train on CPUs are profiled, but seldom.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.hangs.watched_ranks import LABELLED, Place, Places, Watched
from rn50_advisor.advisor.run.rings.ring_reader import Position
from rn50_advisor.advisor.run.stacks.batch_making import counted_making
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.advisor.run.stacks.stack_looker import CountedStacks, Looker
from rn50_advisor.advisor.run.stacks.stack_rows import described, summed, training_thread
from rn50_advisor.probes.documents.event_documents import StackProfile, StackSample
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

_OUTSIDE = frozenset({"gap", "clip"})
_EVALUATION = "evaluation"
_WORTH_SHARE = 0.05  # share of the step; a shorter gap needs no fix
_LONG_NS = 100_000_000  # a gap this long is sampled regardless of its share
_SHORT_STEP_NS = 700_000_000  # of which a profile of two seconds has several
_WARM_STEPS = 20
_HUNT_S = 0.4
_HUNT_STEP_S = 0.02
# A dump takes 50 ms and counts only if the rank did not move during it: shorter gaps show only in a profile.
_PROFILE_AGAIN_S = 120.0
# Two profiles take 4 s without samples of other ranks; every rank with a GPU appears to sleep in its backward pass, and many sound models
# have a long forward or backward pass.
_SELDOM_AGAIN_S = 600.0


class OutsideSampler:
    """`pause` waits for some seconds and returns True to stop."""

    def __init__(
        self,
        budget: StackBudget,
        *,
        places: Places,
        looker: Looker,
        post: Callable[[AnyEvent | ProbeGap], None],
        pause: Callable[[float], bool],
    ) -> None:
        self._budget = budget
        self._places = places
        self._looker = looker
        self._post = post
        self._pause = pause
        self._profiled_s: dict[int, float] = {}  # rank -> when
        self._woken_s: dict[int, float] = {}  # the same, with a second profile that leaves out its sleep

    def look(self, here: Sequence[Place], makers: Collection[int] = ()) -> None:
        """Profiles one rank, or samples those that are outside the model now; waits a little for ranks with short gaps.

        `makers`: pids of processes that make batches which are waited for.
        """
        due = {w.rank: w for w, at in here if w.trains(at) and self._allows(w)}
        for rank, at in here:
            since_profile_s = _ago_s(self._profiled_s, rank)
            outside = rank.outside_share >= _WORTH_SHARE and since_profile_s >= _PROFILE_AGAIN_S
            seldom = rank.uneven_share >= _WORTH_SHARE or rank.pid in makers or _shows_whole_steps(rank)
            outside |= seldom and since_profile_s >= _SELDOM_AGAIN_S
            asleep = rank.asleep_share >= _WORTH_SHARE and _ago_s(self._woken_s, rank) >= _SELDOM_AGAIN_S
            if rank.rank in due and (outside or asleep) and at.phase not in LABELLED:
                self._take_profile(rank, asleep=asleep, makes=rank.pid in makers)
                return
        for rank, at in here:
            if rank.rank in due and (_outside(rank, at) or at.phase == _EVALUATION):
                self._sample(due.pop(rank.rank), at)
        self._hunt([rank for rank in due.values() if rank.outside_share >= _WORTH_SHARE])

    def _hunt(self, hunted: list[Watched]) -> None:
        deadline = time.monotonic() + _HUNT_S
        while hunted and time.monotonic() < deadline and not self._pause(_HUNT_STEP_S):
            for rank in hunted:
                seen = self._places.position(rank)
                if seen is not None and _outside(rank, seen):
                    self._sample(rank, seen)
                    hunted = [other for other in hunted if other is not rank and self._allows(other)]
                    break

    def _take_profile(self, rank: Watched, *, asleep: bool, makes: bool) -> None:
        stacks, awake, cpu_s = self._looker.profile(rank.pid, awake=asleep)
        now_s = time.monotonic()
        after = self._places.position(rank)
        training = after is not None and after.phase not in LABELLED
        self._budget.spent(rank.rank, now_s, cpu_s, hit=training and not isinstance(stacks, ProbeGap))
        if isinstance(stacks, ProbeGap):
            self._refuse(rank, stacks)
            return
        if isinstance(awake, ProbeGap) and after is not None and not after.ended:
            self._post(awake)  # no refusal to look into it, for the first profile was let
        counted = _of_training(stacks, rank)
        if counted and training:
            self._profiled_s[rank.rank] = now_s
            if asleep:
                self._woken_s[rank.rank] = now_s
            woken = None if awake is None or isinstance(awake, ProbeGap) else _of_training(awake, rank)
            data: StackProfile = {"outside_share": rank.outside_share, **summed(counted, woken)}
            if makes:
                data["making"] = counted_making(counted)
            self._post(happened(StackProfile, data, t_ns=time.perf_counter_ns(), pid=rank.pid, rank=rank.rank))

    def _sample(self, rank: Watched, before: Position) -> None:
        """A sample counts only if the rank was in the same phase before and after it."""
        stacks, cpu_s = self._looker.dump(rank.pid)
        now_ns = time.perf_counter_ns()
        after = self._places.position(rank)
        same = after is not None and (after.phase, after.since_ns) == (before.phase, before.since_ns)
        self._budget.spent(rank.rank, time.monotonic(), cpu_s, hit=same and not isinstance(stacks, ProbeGap))
        if isinstance(stacks, ProbeGap):
            self._refuse(rank, stacks)
            return
        self._looker.refusals = 0
        stack = training_thread(stacks, rank.thread)
        if same and stack is not None:
            data: StackSample = {
                "phase": before.phase,
                "label": None,
                "step": before.step,
                "phase_for_s": (now_ns - before.since_ns) / 1e9,
                **described(stack),
            }
            self._post(happened(StackSample, data, t_ns=now_ns, pid=rank.pid, rank=rank.rank))

    def _refuse(self, rank: Watched, gap: ProbeGap) -> None:
        """py-spy failed; that the rank has just ended is no failure."""
        after = self._places.position(rank)
        if after is not None and not after.ended:
            self._looker.refusals += 1
            self._post(gap)

    def _allows(self, rank: Watched) -> bool:
        return self._budget.allows(rank.rank, time.monotonic())


def _shows_whole_steps(rank: Watched) -> bool:
    """True if a profile shows lines of several steps, which on a CPU is where their time goes, and if the first steps are over."""
    return not rank.on_gpu and rank.steps >= _WARM_STEPS and 0 < rank.median_ns <= _SHORT_STEP_NS


def _ago_s(when_s: dict[int, float], rank: Watched) -> float:
    return time.monotonic() - when_s.get(rank.rank, -math.inf)


def _of_training(stacks: CountedStacks, rank: Watched) -> list[CountedStack]:
    return [s for s in stacks if s.thread_id == rank.thread] or [s for s in stacks if s.name == "MainThread"]


def _outside(rank: Watched, at: Position) -> bool:
    """True if a stack of the rank is worth its cost: between the phases of the model, after its first step."""
    if at.phase not in _OUTSIDE and not (at.phase == "start" and at.step > 0):
        return False
    return rank.outside_share >= _WORTH_SHARE or time.perf_counter_ns() - at.since_ns >= _LONG_NS
