"""A scenario: a job, its fault, the truth about it, and the job with the fix."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Saving

Strength = Literal["clear", "just above", "just below", "none"]
Ending = Literal["finishes", "fails", "hangs"]
Untouched = Literal["forward", "backward"]
Start = Literal["torchrun", "one by one"]
Suite = Literal["fast", "usual", "all"]  # `make test`, `make faults`, --all; each contains the one before it
Promise = Callable[[Analysis], Saving | None]
HEALTHY = "healthy"  # among a truth's roots: the healthy verdict is also right


class CannotBeMade(Exception):
    """The fault cannot be made on this machine; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The effect of a fixture on a job while it is held."""

    container: tuple[str, ...] = ()  # command prefix of the advisor, which then runs under the fault, as in a container
    prefix: tuple[str, ...] = ()  # command prefix of the job alone
    values: Mapping[str, str] = field(default_factory=dict)  # values of {names} in the job's arguments


class Fixture(Protocol):
    """A circumstance outside the job. Holding it may raise CannotBeMade; leaving it undoes everything."""

    def hold(self, folder: Path) -> AbstractContextManager[Conditions]: ...


@dataclass(frozen=True, slots=True)
class Job:
    """A command as a user would type it. `ranks`: processes that `start` starts, 0 for plain python."""

    script: str  # relative to samples/
    arguments: tuple[str, ...] = ()
    ranks: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    start: Start = "torchrun"

    def __call__(self, *arguments: str, ranks: int | None = None) -> Job:
        """Returns this job with more arguments. An option that it has already gets its new value."""
        named = {argument.partition("=")[0]: argument for argument in (*self.arguments, *arguments)}
        return replace(self, arguments=tuple(named.values()), ranks=self.ranks if ranks is None else ranks)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A story of samples/gpus, recorded through the fake driver instead of a job that needs GPUs. `changes`: fields of the story."""

    story: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The right verdict. Root findings of medium severity or above that are in neither `roots` nor `also` are false alarms.

    Without `roots` the right verdict is healthy; with `never` alone, any verdict but these.
    """

    roots: tuple[str, ...] = ()  # acceptable root rules, the best one first; HEALTHY may be the last
    ranks: tuple[int, ...] | None = None  # which ranks the root must name
    also: tuple[str, ...] = ()  # also true, besides the root
    never: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()  # must be among the findings, at any severity
    silent: tuple[str, ...] = ()  # must not be among the findings, at any severity
    lines: tuple[str, ...] = ()  # one must be in the source line that the first fix names
    says: str = ""  # must be in the title, evidence or fixes of the root

    @property
    def label(self) -> str:
        ranks = "" if self.ranks is None else f" rank {', '.join(map(str, self.ranks))}"
        if self.roots:
            return " or ".join(self.roots) + ranks
        if self.noted and not self.never:
            return f"healthy, {', '.join(self.noted)} told"
        return f"not {', '.join(self.never)}" if self.never else "healthy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """The advised change applied: another job, other circumstances, or both (None: as before).

    `untouched`: phases that the change does not affect; they show the machine's speed in either run.
    `promise`: the advice whose prediction is checked, if it is not the finding's first.
    """

    job: Job | None = None
    fixtures: tuple[Fixture, ...] | None = None
    untouched: tuple[Untouched, ...] = ()
    promise: Promise | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    name: str
    job: Job | Recorded
    truth: Truth
    strength: Strength
    fixtures: tuple[Fixture, ...] = ()
    remedy: Remedy | None = None
    ending: Ending = "finishes"
    onset_step: int = 0  # first step with the fault
    suite: Suite = "usual"  # the smallest suite that runs it; --only runs it in any case
    note: str = ""  # why this is the truth, if that is not obvious
    late: str = ""  # why a right verdict can only come late


def fault(
    name: str,
    rule: str | tuple[str, ...],
    job: Job,
    *fixtures: Fixture,
    strength: Strength = "clear",
    ranks: tuple[int, ...] | None = None,
    also: tuple[str, ...] = (),
    noted: tuple[str, ...] = (),
    line: str | tuple[str, ...] = (),
    says: str = "",
    fixed: Job | str | tuple[str, ...] = (),
    untouched: tuple[Untouched, ...] = (),
    remedy: Remedy | None = None,
    ending: Ending = "finishes",
    onset_step: int = 0,
    suite: Suite = "usual",
    note: str = "",
    late: str = "",
) -> Scenario:
    """Returns the scenario of a fault whose right verdict is `rule`, at `line`, or one of several.

    Just below its threshold, `rule` must not be a root, and there is nothing to find or to fix. `fixed`: the job with the fix, or
    what the fix changes in its arguments, as a remedy that changes nothing else and leaves the phases `untouched`.
    """
    rules = (rule,) if isinstance(rule, str) else rule
    lines = tuple(filter(None, (line,) if isinstance(line, str) else line))
    if strength == "just below":
        truth = Truth(never=rules, also=also)
    else:
        truth = Truth(roots=rules, ranks=ranks, also=also, noted=noted, lines=lines, says=says)
    if fixed:
        changed = (fixed,) if isinstance(fixed, str) else fixed
        remedy = Remedy(job=changed if isinstance(changed, Job) else job(*changed), untouched=untouched)
    return Scenario(
        name=name,
        job=job,
        truth=truth,
        strength=strength,
        fixtures=fixtures,
        remedy=remedy,
        ending=ending,
        onset_step=onset_step,
        suite=suite,
        note=note,
        late=late,
    )


def sound_twin(
    name: str,
    rule: str | tuple[str, ...],
    job: Job | Recorded,
    *fixtures: Fixture,
    also: tuple[str, ...] = (),
    note: str = "",
) -> Scenario:
    """Returns a scenario that resembles a fault, and of which `rule` says nothing, not even beside the verdict."""
    rules = (rule,) if isinstance(rule, str) else rule
    truth = Truth(never=rules, silent=rules, also=also)
    return Scenario(name=name, job=job, truth=truth, strength="just below", fixtures=fixtures, note=note)
