"""A thread that looks into ranks: into time outside the model, which no mark explains, and into ranks that stand still."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.core.metrics import ProbeGap
from advisor.core.recording import Event
from advisor.run.absent import absent_ranks
from advisor.run.interpreter import WORTH_SHARE, InterpreterLooks, Suspect
from advisor.run.making import Maker, MakingLooks
from advisor.run.options import RunOptions
from advisor.run.rings import NotARing, Position, RingReader
from advisor.run.stackbudget import StackBudget
from advisor.run.stackrows import COMPILERS, described, summed, training_thread
from advisor.run.stalls import Sight, StallClock, StallState
from probes.host.procfs import parse_stat, read_text
from probes.host.stack_profile import CountedStack, profile_awake, profile_stacks
from probes.host.stacks import Frame, ThreadStack, dump_stacks
from probes.rank.layout import ERRORS_MAX

_OUTSIDE = frozenset({"gap", "clip"})
_LABELLED = frozenset({"evaluation", "checkpoint", "ended"})  # nobody need be asked where this time goes
_WORTH_SHARE = 0.05  # of the step; a shorter gap is nothing to mend
_LONG_NS = 100_000_000  # a gap that lasts so long is looked into whatever the share
_HUNT_S = 0.4
_HUNT_STEP_S = 0.02
# A dump takes 50 ms and counts only where the rank stood still meanwhile: shorter gaps show only in a profile.
_PROFILE_AGAIN_S = 120.0
# Two profiles take 4 s, in which nobody else is looked at, and every rank with a GPU seems to sleep in its backward pass.
_ASLEEP_AGAIN_S = 600.0
_ASLEEP_NS = 5_000_000_000
_REFUSALS_MAX = 3
_FLIGHT_BYTES_MAX = 1 << 20

Dump = Callable[[int], tuple[ThreadStack, ...] | ProbeGap]
Stacks = tuple[CountedStack, ...]
Profile = Callable[[int], Stacks | ProbeGap]


@dataclass(frozen=True, slots=True)
class Watched:
    """A living rank, as the agent sees it. `thread`: the kernel's id of the thread that trains, where it is known."""

    rank: int
    pid: int
    ring: Path
    ring_made_ns: int  # the same path may come to hold another ring: exec keeps the pid
    steps: int
    outside_share: float
    p99_ns: int
    thread: int | None = None
    whole_p99_ns: int = 0  # with the evaluations and checkpoints in them
    asleep_share: float = 0.0  # of its steps, in which the model neither computed nor stood in line for a core
    group: int = 1  # with so many it exchanges, itself included


class StackWatch:
    """`post` is called in the thread. `watched` is set from outside; positions are read from the rings by itself."""

    def __init__(
        self,
        options: RunOptions,
        *,
        post: Callable[[Event | ProbeGap], None],
        dump: Dump = dump_stacks,
        profile: Profile = profile_stacks,
        profile_awake: Profile = profile_awake,
    ) -> None:
        self._options = options
        self._post = post
        self._dump = dump
        self._profile = profile
        self._profile_awake = profile_awake
        self._profiled: dict[int, float] = {}  # rank -> when
        self._woken: dict[int, float] = {}  # the same, with a second profile that leaves out its sleep
        self._stalls = StallClock(after_s=options.stall_after_s, refresh_s=options.stall_refresh_s)
        self._readers: dict[tuple[Path, int], RingReader] = {}
        self._refusals = 0
        self._stop = threading.Event()
        self._budget: StackBudget | None = None
        self._thread = threading.Thread(target=self._run, name="rn50-stacks", daemon=True)
        self._making: MakingLooks | None = None
        self._interpreter: InterpreterLooks | None = None
        self.watched: tuple[Watched, ...] = ()
        self.makers: tuple[Maker, ...] = ()  # of batches that are waited for
        self.sampling = options.stacks
        self.cpu_s = 0.0  # of all the looks so far

    def start(self) -> None:
        self._thread.start()

    def finish(self, within_s: float) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        o, now_s = self._options, time.monotonic()
        self._budget = StackBudget(
            now_s=now_s, share=o.stack_share, period_s=o.stack_period_s, first=o.stack_first, dense_s=o.stack_dense_s
        )
        # The looks that workers take into samples tell most, but not for whom they wait: as few as that takes, and soon. One name for who
        # holds the interpreter is enough.
        makers, holders = (
            StackBudget(
                now_s=now_s,
                share=o.stack_share / 2,
                period_s=period_s,
                first=o.stack_first // part,
                dense_s=o.stack_dense_s,
            )
            for part, period_s in ((3, o.stack_period_s / 2), (6, o.stack_period_s))
        )
        self._making = MakingLooks(makers, dump=self._timed_dump, post=self._post)
        self._interpreter = InterpreterLooks(holders, dump=self._timed_dump, post=self._post, pause=self._stop.wait)
        try:
            seen_ns = time.perf_counter_ns()
            while not self._stop.wait(o.poll_s):
                now_ns = time.perf_counter_ns()
                if now_ns - seen_ns > _ASLEEP_NS:
                    self._stalls.woke_up(now_ns)
                self._look(now_ns)
                seen_ns = time.perf_counter_ns()
            self._tell_stall(self._stalls.end(time.perf_counter_ns()), (), ())
        except Exception as error:  # noqa: BLE001 - the wall of this thread
            reason = f"the watch for hangs broke off: {type(error).__name__}: {error}"
            self._post(ProbeGap("stacks", "job", reason, "please report this"))
        finally:
            self._interpreter.close()
            for reader in self._readers.values():
                reader.close()

    def _look(self, now_ns: int) -> None:
        watched = self.watched
        self._keep_readers(watched)
        places = [(rank, at) for rank in watched if (at := self._position(rank)) is not None]
        sights = [
            Sight(w.rank, w.pid, at.phase, at.step, at.since_ns, w.steps, _p99_ns(w, at), w.group) for w, at in places
        ]
        state = self._stalls.look(now_ns, sights)
        if state is not None:
            self._tell_stall(state, places, watched)
        elif self.sampling and self._refusals < _REFUSALS_MAX:
            self._look_outside(places)

    def _look_outside(self, places: list[tuple[Watched, Position]]) -> None:
        """Samples may break off; who stands still is told all the same."""
        try:
            self._hunt(places)
            if self._making is not None:
                self._making.look(self.makers)
            if self._interpreter is not None:
                self._interpreter.look([_suspect(rank) for rank, at in places if _sleeps(rank, at)])
        except Exception as error:  # noqa: BLE001 - the wall between samples and the watch for hangs
            self.sampling = False
            reason = f"stack samples broke off: {type(error).__name__}: {error}"
            self._post(ProbeGap("stacks", "job", reason, "please report this"))

    def _keep_readers(self, watched: Sequence[Watched]) -> None:
        wanted = {(w.ring, w.ring_made_ns) for w in watched}
        for key in [key for key in self._readers if key not in wanted]:
            self._readers.pop(key).close()
        for key in wanted - self._readers.keys():
            with contextlib.suppress(NotARing, OSError):
                self._readers[key] = RingReader(key[0])

    def _position(self, rank: Watched) -> Position | None:
        """None also where its recorder has given up: then its header stands still, not the rank."""
        with contextlib.suppress(KeyError, NotARing, OSError):
            at = self._readers[rank.ring, rank.ring_made_ns].position()
            return at if at.errors < ERRORS_MAX else None
        return None

    # -- time outside the model -------------------------------------------------------------------------------------------------

    def _hunt(self, places: list[tuple[Watched, Position]]) -> None:
        """Look into ranks that are outside the model now; wait a little for those whose steps have short gaps."""
        assert self._budget is not None
        due = {w.rank: w for w, at in places if _trains(w, at) and self._budget.allows(w.rank, time.monotonic())}
        for rank, at in places:
            now_s = time.monotonic()
            outside = (
                rank.outside_share >= _WORTH_SHARE
                and now_s >= self._profiled.get(rank.rank, -math.inf) + _PROFILE_AGAIN_S
            )
            asleep = (
                rank.asleep_share >= _WORTH_SHARE and now_s >= self._woken.get(rank.rank, -math.inf) + _ASLEEP_AGAIN_S
            )
            if rank.rank in due and (outside or asleep) and at.phase not in _LABELLED:
                self._take_profile(rank, asleep=asleep)
                return
        hunted = [w for w in due.values() if w.outside_share >= _WORTH_SHARE]
        for rank, at in places:
            if rank.rank in due and _outside(rank, at):
                self._sample(due.pop(rank.rank), at)
        hunted = [w for w in hunted if w.rank in due]
        deadline = time.monotonic() + _HUNT_S
        while hunted and time.monotonic() < deadline and not self._stop.wait(_HUNT_STEP_S):
            for rank in hunted:
                seen = self._position(rank)
                if seen is not None and _outside(rank, seen):
                    self._sample(rank, seen)
                    hunted = [w for w in hunted if w is not rank and self._budget.allows(w.rank, time.monotonic())]
                    break

    def _take_profile(self, rank: Watched, *, asleep: bool) -> None:
        assert self._budget is not None
        with _children_cpu() as spent:
            stacks = self._profile(rank.pid)
            # where it sleeps, nobody can tell from one that takes in all
            awake = self._profile_awake(rank.pid) if asleep else None
        self.cpu_s += spent[0]
        after = self._position(rank)
        training = after is not None and after.phase not in _LABELLED
        self._budget.spent(rank.rank, time.monotonic(), spent[0], hit=training and not isinstance(stacks, ProbeGap))
        if isinstance(stacks, ProbeGap):
            self._refuse(rank, stacks)
            return
        if isinstance(awake, ProbeGap) and after is not None and not after.ended:
            self._post(awake)  # no refusal to look into it, for the first profile was let
        mine = _of_training(stacks, rank)
        if mine and training:
            self._profiled[rank.rank] = time.monotonic()
            if asleep:
                self._woken[rank.rank] = self._profiled[rank.rank]
            woken = None if awake is None or isinstance(awake, ProbeGap) else _of_training(awake, rank)
            data = {"outside_share": rank.outside_share, **summed(mine, woken)}
            self._post(Event(time.perf_counter_ns(), "profile", rank.pid, rank.rank, data))

    def _refuse(self, rank: Watched, gap: ProbeGap) -> None:
        """py-spy failed; that the rank has just ended is no failure."""
        after = self._position(rank)
        if after is not None and not after.ended:
            self._refusals += 1
            self._post(gap)

    def _sample(self, rank: Watched, before: Position) -> None:
        """A look counts only if the rank stood in the same phase before and after it."""
        assert self._budget is not None
        stacks, cpu_s = self._timed_dump(rank.pid)
        now_ns = time.perf_counter_ns()
        after = self._position(rank)
        same = after is not None and (after.phase, after.since_ns) == (before.phase, before.since_ns)
        self._budget.spent(rank.rank, time.monotonic(), cpu_s, hit=same and not isinstance(stacks, ProbeGap))
        if isinstance(stacks, ProbeGap):
            self._refuse(rank, stacks)
            return
        self._refusals = 0
        stack = training_thread(stacks, rank.thread)
        if same and stack is not None:
            data = {
                "phase": before.phase,
                "label": None,
                "step": before.step,
                "phase_for_s": (now_ns - before.since_ns) / 1e9,
                **described(stack),
            }
            self._post(Event(now_ns, "stack", rank.pid, rank.rank, data))

    def _timed_dump(self, pid: int) -> tuple[tuple[ThreadStack, ...] | ProbeGap, float]:
        with _children_cpu() as spent:
            stacks = self._dump(pid)
        self.cpu_s += spent[0]
        return stacks, spent[0]

    # -- ranks that stand still -------------------------------------------------------------------------------------------------

    def _tell_stall(
        self, state: StallState | None, places: Sequence[tuple[Watched, Position]], watched: Sequence[Watched]
    ) -> None:
        """Stacks of all ranks: who waits is as telling as who does not."""
        if state is None:
            return
        data: dict[str, Any] = {"id": state.id, "stalled_s": state.stalled_ns / 1e9}
        if not state.ended:
            data["ranks"] = [self._stalled_rank(rank, at) for rank, at in (*places, *_absent(state, watched))]
        now_ns = state.since_ns + state.stalled_ns
        self._post(Event(now_ns, "stall_end" if state.ended else "stall", None, None, data))

    def _collective(self, rank: Watched, at: Position) -> dict[str, Any]:
        """Which collective it is in, as its ring and torch's flight recorder tell."""
        told: dict[str, Any] = {}
        with contextlib.suppress(KeyError, NotARing, OSError):
            call = self._readers[rank.ring, rank.ring_made_ns].collective()
            if call is not None:
                inside_s = (time.perf_counter_ns() - call.inside_since_ns) / 1e9 if call.inside_since_ns else None
                told["collective"] = {
                    "begun": call.begun,
                    "kind": call.kind,
                    "group": call.group,
                    "size": call.size,
                    "inside_s": inside_s,
                }
        return told

    def _stalled_rank(self, rank: Watched, at: Position) -> dict[str, Any]:
        row: dict[str, Any] = {
            "rank": rank.rank,
            "pid": rank.pid,
            "phase": at.phase,
            "step": at.step,
            "since_ns": at.since_ns,
            "since_s": (time.perf_counter_ns() - at.since_ns) / 1e9,
            **_running(rank),
            **self._collective(rank, at),
        }
        own = _own_words(rank, at)
        if own.get("dumps"):
            row["flight"] = own["dumps"]
        stack = None
        if self._refusals < _REFUSALS_MAX and self._options.stacks:
            stacks, _ = self._timed_dump(rank.pid)
            if isinstance(stacks, ProbeGap):
                self._post(stacks)
                row["gap"] = stacks.reason
            else:
                stack = training_thread(stacks, rank.thread)
                # a backward pass is compiled in a thread of autograd's
                row["compiles"] = any(frame.file.endswith(COMPILERS) for each in stacks for frame in each.frames)
        if stack is None and own.get("stack"):
            stack = _told_stack(own["stack"])
        if stack is not None:
            row |= {"thread": stack.name, **described(stack, with_text=False)}
        return row


def _of_training(stacks: Stacks, rank: Watched) -> list[CountedStack]:
    return [s for s in stacks if s.thread_id == rank.thread] or [s for s in stacks if s.name == "MainThread"]


def _absent(state: StallState, watched: Sequence[Watched]) -> Iterator[tuple[Watched, Position]]:
    """Ranks that have no ring since they have not begun their first backward pass; of where they are only this is known.

    `watched`: also those whose recorders have given up, for they are not absent.
    """
    seen = {rank.rank: rank.pid for rank in watched}
    group = max((rank.group for rank in watched), default=1)
    at = Position("start", 0, state.since_ns, 0, 0, ended=False)
    for rank, pid in sorted(absent_ranks(seen, group).items()):
        ring = watched[0].ring.with_name(f"rank-{pid}.ring")  # where it will be
        yield Watched(rank, pid, ring, 0, steps=0, outside_share=0.0, p99_ns=0), at


def _own_words(rank: Watched, at: Position) -> dict[str, list[dict[str, Any]]]:
    """What the rank wrote down when it had stood at this place for a while: torch's flight recorder, and its own stack."""
    path = rank.ring.with_name(f"flight-{rank.pid}.json")
    with contextlib.suppress(OSError, ValueError):
        if path.stat().st_size <= _FLIGHT_BYTES_MAX:
            told = json.loads(path.read_text())
            if isinstance(told, dict) and told.get("since_ns") == at.since_ns:
                lists = {key: told[key] for key in ("dumps", "stack") if isinstance(told.get(key), list)}
                return {key: [each for each in found if isinstance(each, dict)] for key, found in lists.items()}
    return {}


def _told_stack(frames: Sequence[dict[str, Any]]) -> ThreadStack | None:
    """A rank's own word on where its training thread stands, where nobody else may look into it."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        found = tuple(Frame(str(f["function"]), str(f["file"]), int(f["line"])) for f in frames)
        return ThreadStack(None, "told by the rank itself", True, False, found)
    return None


def _p99_ns(rank: Watched, at: Position) -> int:
    return rank.whole_p99_ns if at.phase in _LABELLED else rank.p99_ns


def _trains(rank: Watched, at: Position) -> bool:
    return rank.steps > 0 and not at.ended


def _sleeps(rank: Watched, at: Position) -> bool:
    return _trains(rank, at) and at.phase not in _LABELLED and rank.asleep_share >= WORTH_SHARE


def _suspect(rank: Watched) -> Suspect:
    return Suspect(rank.rank, rank.pid, rank.thread or rank.pid)


def _outside(rank: Watched, at: Position) -> bool:
    """Whether the rank is where a stack is worth its cost: between the phases of the model, after its first step."""
    if at.phase not in _OUTSIDE and not (at.phase == "start" and at.step > 0):
        return False
    return rank.outside_share >= _WORTH_SHARE or time.perf_counter_ns() - at.since_ns >= _LONG_NS


def _running(rank: Watched) -> dict[str, Any]:
    """What the kernel says of the thread that trains: R running, S sleeping, D in the kernel's hands (a disk, a driver), T stopped.

    `wchan`: where in the kernel it sleeps; empty or "0" where that is not told. `cpu_s` is of all threads: another one may work for it.
    """
    process = Path(f"/proc/{rank.pid}")
    try:
        whole = parse_stat((process / "stat").read_bytes())
    except (OSError, ValueError, IndexError):
        return {"state": None}
    thread, state = process / f"task/{rank.thread or rank.pid}", whole.state
    with contextlib.suppress(OSError, ValueError, IndexError):
        state = parse_stat((thread / "stat").read_bytes()).state
    return {"state": state.decode(), "wchan": read_text(thread / "wchan") or "", "cpu_s": whole.cpu_s}


@contextlib.contextmanager
def _children_cpu() -> Iterator[list[float]]:
    """CPU seconds of children that ended meanwhile. The job itself, should it be reaped just now, is not ours to count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = time.monotonic()
    spent = [0.0]
    yield spent
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent[0] = min(cpu_s, time.monotonic() - wall_s)
