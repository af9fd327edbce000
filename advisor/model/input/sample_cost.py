"""The cost of a sample: CPU time of its transforms, of loading and of collating, from samples that were profiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from rn50_advisor.advisor.model.wording.quantities import bytes_, duration, number, share
from rn50_advisor.probes.documents.code_places import CollectionWork, ReadWhole

PartKind = Literal["transform", "load", "rest"]
FACT = "sample"
ROWS_SHOWN = 12


@dataclass(frozen=True, slots=True)
class SamplePart:
    """One part of a sample's cost, as means per sample. `share` is of the CPU time, `error` its standard error.

    `file` and `line` are set only for the user's code; `made_file` and `made_line` tell where that makes a library's transform.
    """

    kind: PartKind
    name: str
    file: str
    line: int
    cpu_s: float
    wall_s: float
    share: float
    error: float = 0.0
    made_file: str = ""
    made_line: int = 0

    @property
    def title(self) -> str:
        return f"{self.name} (open and decode)" if self.kind == "load" else self.name

    @property
    def place(self) -> str:
        """For example `data.py:21`; empty if it is not known."""
        file, line = (self.file, self.line) if self.file else (self.made_file, self.made_line)
        return f"{file}:{line}" if file else ""


@dataclass(frozen=True, slots=True)
class SampleLine:
    """A line of the user's code found in `seen` of `looks` stack samples of processes that make samples."""

    function: str
    file: str
    line: int
    seen: int
    looks: int

    @property
    def share(self) -> float:
        return self.seen / max(self.looks, 1)

    @property
    def words(self) -> str:
        """For example `blur (data.py:21)`."""
        return f"{self.function} ({self.file.rsplit('/', 1)[-1]}:{self.line})"


@dataclass(frozen=True, slots=True)
class SharedLock:
    """A `lock` or a `server` process that workers wait for one after another. `line`: where they wait, if known."""

    kind: str
    line: SampleLine | None = None


@dataclass(frozen=True, slots=True)
class FrequentCall:
    """A call such as `zipfile.ZipFile`, or a library such as `pandas`, in which stack samples found processes that make items. `work`: what
    the call does with a whole collection, if it does; `whole`: what it reads of which an item is a part, if it does;
    `computes`: it computes the same for all items, also at the lines `more`.
    """

    name: str
    line: SampleLine
    work: CollectionWork | None = None
    computes: bool = False
    more: tuple[SampleLine, ...] = ()
    whole: ReadWhole | None = None


@dataclass(frozen=True, slots=True)
class SampleCost:
    """The cost of a training sample, from `looks` profiled samples. None: not measured."""

    looks: int
    cpu_s: float
    wall_s: float
    parts: tuple[SamplePart, ...] = ()  # costliest first
    collate_s: float | None = None  # per batch
    batch_bytes: float | None = None
    width: float | None = None
    height: float | None = None
    file_bytes: float | None = None
    lines: tuple[SampleLine, ...] = ()  # from stack samples, most frequent first
    path: tuple[
        SampleLine, ...
    ] = ()  # calls that most stack samples share, the outermost line first; `seen` includes what a line calls

    @property
    def costliest_transform(self) -> SamplePart | None:
        return next((part for part in self.parts if part.kind == "transform"), None)

    def path_until(self, least: float) -> tuple[SampleLine, ...]:
        """The part of `path` whose lines, with what they call, have at least this share of the stack samples."""
        return tuple(line for line in self.path if line.share >= least)

    @property
    def picture(self) -> str:
        """Mean size as `500×375`; empty if samples are not pictures."""
        return f"{self.width:.0f}×{self.height:.0f}" if self.width and self.height else ""


def sample_facts(cost: SampleCost | None) -> dict[str, Any]:
    """The cost for the report's facts; empty if no sample was profiled."""
    return {FACT: asdict(cost)} if cost is not None else {}


@dataclass(frozen=True, slots=True)
class SampleTable:
    """The cost of a sample in words. `rows`: part, CPU time per sample, share, place. `notes`: one line on the batch and the pictures."""

    rows: tuple[tuple[str, str, str, str], ...]
    notes: str
    hidden: int = 0


def sample_table(facts: Mapping[str, Any]) -> SampleTable | None:
    """The table from a report's facts; None if nothing was measured or if the facts have another shape."""
    stored = facts.get(FACT)
    try:
        cost = _cost(stored) if isinstance(stored, Mapping) else None
    except (TypeError, ValueError, KeyError):
        cost = None
    if cost is None:
        return None
    rows = [(part.title, duration(part.cpu_s), share(part.share), part.place) for part in cost.parts]
    return SampleTable(tuple(rows[:ROWS_SHOWN]), _notes(cost), max(0, len(rows) - ROWS_SHOWN))


def _cost(stored: Mapping[str, Any]) -> SampleCost:
    parts = tuple(SamplePart(**part) for part in stored["parts"])
    lines = tuple(SampleLine(**line) for line in stored["lines"])
    path = tuple(SampleLine(**line) for line in stored.get("path", ()))
    return SampleCost(**{**stored, "parts": parts, "lines": lines, "path": path})


def _notes(cost: SampleCost) -> str:
    parts = [f"{duration(cost.cpu_s)} of CPU time per sample ({cost.looks:,} profiled)"]
    if cost.collate_s is not None:
        parts.append(f"collating {duration(cost.collate_s)} per batch")
    if cost.batch_bytes is not None:
        parts.append(f"{bytes_(cost.batch_bytes)} per batch")
    if cost.picture:
        parts.append(f"pictures of {cost.picture} on average")
    if cost.file_bytes is not None:
        parts.append(f"files of {number(cost.file_bytes / 1000)} KB")
    if cost.lines:
        line = cost.lines[0]
        parts.append(f"most often in {line.words}: {line.seen} of {line.looks} stack samples")
    return ", ".join(parts)


def without_samples(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts without the cost of a sample, which has a table of its own."""
    return {key: value for key, value in facts.items() if key != FACT}
