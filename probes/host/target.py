"""The processes that probes measure, and the interface of host probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from rn50_advisor.advisor.model.metrics import Reading

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Role  # at run time it would import numpy


@dataclass(frozen=True, slots=True)
class Target:
    """One live process of the job. `rank` of a worker is the rank it works for."""

    pid: int
    role: Role
    rank: int | None = None


class Probe(Protocol):
    """A host probe. Keeps its state between ticks, reports numbers or gaps, never opinions. A vanished process is no error."""

    @property
    def name(self) -> str: ...

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading: ...


@runtime_checkable
class Seldom(Protocol):
    """A probe that does not read everything at every tick."""

    def read_all(self) -> None:
        """Makes the next tick read everything."""
