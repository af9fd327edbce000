"""A thread that samples the stacks of ranks in time that no mark explains, and reports stalled ranks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.hangs.stall_watch import RankSight, StallClock, StallState
from rn50_advisor.advisor.run.hangs.stalled_ranks import StalledRanks
from rn50_advisor.advisor.run.hangs.watched_ranks import LABELLED, Place, Places, Watched
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.run.stacks.batch_making import BatchMakingSampler, Maker
from rn50_advisor.advisor.run.stacks.interpreter_sampler import WORTH_SHARE, InterpreterSampler, Suspect
from rn50_advisor.advisor.run.stacks.outside_sampler import OutsideSampler
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.advisor.run.stacks.stack_looker import Looker
from rn50_advisor.probes.documents.event_documents import StallEnd, StallSeen

_ASLEEP_NS = 5_000_000_000


class StackWatch:
    """`post` is called in the thread. `watched` is set from outside; positions are read from the rings by itself."""

    def __init__(
        self, options: RunOptions, *, post: Callable[[AnyEvent | ProbeGap], None], looker: Looker | None = None
    ) -> None:
        self._options = options
        self._post = post
        self._looker = looker or Looker()
        self._places = Places()
        self._stalls = StallClock(after_s=options.stall_after_s, refresh_s=options.stall_refresh_s)
        self._stalled = StalledRanks(places=self._places, looker=self._looker, with_stacks=options.stacks, post=post)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rn50-stacks", daemon=True)
        self._outside = OutsideSampler(
            self._budget(), places=self._places, looker=self._looker, post=post, pause=self._stop.wait
        )
        # Workers time their own samples; stacks only show what they wait for, so a few early ones are enough. Of the thread that holds the
        # interpreter one stack is enough.
        making, holders = self._budget(share=1 / 2, first=3, period=1 / 2), self._budget(share=1 / 2, first=6)
        self._making = BatchMakingSampler(making, dump=self._looker.dump, post=post)
        self._interpreter = InterpreterSampler(holders, dump=self._looker.dump, post=post, pause=self._stop.wait)
        self.watched: tuple[Watched, ...] = ()
        self.makers: tuple[Maker, ...] = ()  # of batches that are waited for
        self.sampling = options.stacks

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all dumps and profiles so far."""
        return self._looker.cpu_s

    def start(self) -> None:
        self._thread.start()

    def finish(self, within_s: float) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _budget(self, *, share: float = 1.0, first: int = 1, period: float = 1.0) -> StackBudget:
        """Returns a budget that starts now: the options with share and period multiplied, and the first dumps divided, by these factors."""
        o = self._options
        return StackBudget(
            now_s=time.monotonic(),
            share=o.stack_share * share,
            period_s=o.stack_period_s * period,
            first=o.stack_first // first,
            dense_s=o.stack_dense_s,
        )

    def _run(self) -> None:
        try:
            seen_ns = time.perf_counter_ns()
            while not self._stop.wait(self._options.poll_s):
                now_ns = time.perf_counter_ns()
                if now_ns - seen_ns > _ASLEEP_NS:
                    self._stalls.woke_up(now_ns)
                self._look(now_ns)
                seen_ns = time.perf_counter_ns()
            self._post_stall(self._stalls.end(time.perf_counter_ns()), (), ())
        except Exception as error:  # noqa: BLE001 - the wall of this thread
            reason = f"watching for hangs stopped: {type(error).__name__}: {error}"
            self._post(ProbeGap("stacks", "job", reason, "please report this"))
        finally:
            self._interpreter.close()
            self._places.close()

    def _look(self, now_ns: int) -> None:
        watched = self.watched
        self._places.keep(watched)
        here = [(rank, at) for rank in watched if (at := self._places.position(rank)) is not None]
        sights = [
            RankSight(w.rank, w.pid, at.phase, at.step, at.since_ns, w.steps, w.p99_at(at), w.group) for w, at in here
        ]
        state = self._stalls.look(now_ns, sights)
        if state is not None:
            self._post_stall(state, here, watched)
        elif self.sampling and not self._looker.refused:
            self._sample(here)

    def _sample(self, here: Sequence[Place]) -> None:
        """Samples the stacks of these ranks. Samples may break off; stalled ranks are reported all the same."""
        try:
            self._outside.look(here, {maker.pid for maker in self.makers})
            self._making.look(self.makers)
            self._interpreter.look([_suspect(place[0]) for place in here if _sleeps(place)])
        except Exception as error:  # noqa: BLE001 - the wall between samples and the watch for hangs
            self.sampling = False
            reason = f"stack sampling stopped: {type(error).__name__}: {error}"
            self._post(ProbeGap("stacks", "job", reason, "please report this"))

    def _post_stall(self, state: StallState | None, here: Sequence[Place], watched: Sequence[Watched]) -> None:
        if state is None:
            return
        end: StallEnd = {"id": state.id, "stalled_s": state.stalled_ns / 1e9}
        now_ns = state.since_ns + state.stalled_ns
        if state.ended:
            self._post(happened(StallEnd, end, t_ns=now_ns))
        else:
            seen: StallSeen = {**end, "ranks": self._stalled.rows(here, watched, state.since_ns)}
            self._post(happened(StallSeen, seen, t_ns=now_ns))


def _sleeps(place: Place) -> bool:
    rank, at = place
    return rank.trains(at) and at.phase not in LABELLED and rank.asleep_share >= WORTH_SHARE


def _suspect(rank: Watched) -> Suspect:
    return Suspect(rank.rank, rank.pid, rank.thread or rank.pid)
