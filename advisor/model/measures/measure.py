"""A measure: a number with a name and a unit, for the job or for each rank, GPU, epoch or mount."""

from __future__ import annotations

from typing import Final, Literal, TypeVar

JOB: Final = "job"
_M = TypeVar("_M", bound="Measure")


class Measure(str):
    """A measure with its unit and description. The string is its name; reports show it, and rules of other distributions may use it."""

    __slots__ = ("unit", "what")
    unit: str
    what: str

    def __new__(cls: type[_M], name: str, unit: str, what: str) -> _M:
        made = super().__new__(cls, name)
        object.__setattr__(made, "unit", unit)
        object.__setattr__(made, "what", what)
        return made

    @property
    def name(self) -> str:
        return str(self)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{self} is declared once: its {name} stays as it is")

    def __reduce__(self) -> tuple[type[Measure], tuple[str, str, str]]:
        """Makes copies and unpickled measures equal to the original."""
        return type(self), (self.name, self.unit, self.what)


class JobMeasure(Measure):
    """One number of the whole job."""

    __slots__ = ()


class RankMeasure(Measure):
    """One number of each rank."""

    __slots__ = ()


class GpuMeasure(Measure):
    """One number of each GPU, by NVML's index."""

    __slots__ = ()


class EpochMeasure(Measure):
    """One number of each epoch, counted from 0."""

    __slots__ = ()


class MountMeasure(Measure):
    """One number of each mount, by its path."""

    __slots__ = ()


class JobAndRankMeasure(JobMeasure, RankMeasure):
    """One number of the job, and one of each rank."""

    __slots__ = ()


class JobAndEpochMeasure(JobMeasure, EpochMeasure):
    """One number of the job, and one of each epoch."""

    __slots__ = ()


# The scope of a value: the job, a rank, a GPU, an epoch or a mount, depending on the type of the measure.
Scope = int | str
Scoped = (
    tuple[JobMeasure, Literal["job"]]
    | tuple[RankMeasure, int]
    | tuple[GpuMeasure, int]
    | tuple[EpochMeasure, int]
    | tuple[MountMeasure, str]
)
