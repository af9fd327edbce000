"""Reads stacks with py-spy and counts its CPU seconds and refusals."""

from __future__ import annotations

import contextlib
import resource
import time
from collections.abc import Callable, Iterator

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.stacks.process_stacks import ThreadStack, dump_stacks
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack, profile_awake, profile_stacks

_REFUSALS_MAX = 3

Stacks = tuple[ThreadStack, ...]
CountedStacks = tuple[CountedStack, ...]
Dump = Callable[[int], Stacks | ProbeGap]
Profile = Callable[[int], CountedStacks | ProbeGap]


class Looker:
    """`refusals`: consecutive failures of py-spy, counted by the callers, who know whether the process was still alive."""

    def __init__(
        self, *, dump: Dump = dump_stacks, profile: Profile = profile_stacks, profile_awake: Profile = profile_awake
    ) -> None:
        self._dump = dump
        self._profile = profile
        self._profile_awake = profile_awake
        self.refusals = 0
        self.cpu_s = 0.0  # of all dumps and profiles so far

    @property
    def refused(self) -> bool:
        return self.refusals >= _REFUSALS_MAX

    def dump(self, pid: int) -> tuple[Stacks | ProbeGap, float]:
        """All threads' stacks, and the CPU seconds that they took."""
        with _children_cpu() as spent:
            stacks = self._dump(pid)
        self.cpu_s += spent[0]
        return stacks, spent[0]

    def profile(
        self, pid: int, *, awake: bool
    ) -> tuple[CountedStacks | ProbeGap, CountedStacks | ProbeGap | None, float]:
        """All threads' stacks over some seconds, again without sleep where `awake`, and the CPU seconds that both took."""
        with _children_cpu() as spent:
            stacks = self._profile(pid)
            # a profile with sleep included does not show where it sleeps
            woken = self._profile_awake(pid) if awake and not isinstance(stacks, ProbeGap) else None
        self.cpu_s += spent[0]
        return stacks, woken, spent[0]


@contextlib.contextmanager
def _children_cpu() -> Iterator[list[float]]:
    """Measures the CPU seconds of children that end within the block; not of the job itself, if it is reaped then."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall_s = time.monotonic()
    spent = [0.0]
    yield spent
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    spent[0] = min(cpu_s, time.monotonic() - wall_s)
