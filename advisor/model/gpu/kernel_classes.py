"""Two steps under torch's profiler: kernels by class, idle time of the GPU, copies and collectives.

The run and a report's facts hold these numbers as JSON; the tables show them in words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rn50_advisor.advisor.model.wording.quantities import duration, number, quantity, share

IDLE_CAUSES = ("input", "copy", "sync", "launch", "other")
CLASS_TITLES = {
    "conv": "convolutions",
    "matmul": "matrix products, attention",
    "norm": "normalisation",
    "elementwise": "elementwise, reductions",
    "layout": "layout changes",
    "optimizer": "optimizer",
    "nccl": "collectives",
    "copy": "copies",
    "input": "loading",
    "compiled": "compiled code",
    "other": "other",
}
FACT = "deep"
ROWS_SHOWN = 8
_CAUSE_WORDS = {
    "input": "waiting for input",
    "copy": "copies",
    "sync": "after the host waited for it",
    "launch": "waiting for launches (which take longer while the profiler records)",
    "other": "streams waiting for each other",
}


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One kernel or kind of copy (on a CPU: one operator), per step. `shapes`: inputs of the costliest calls. None: unknown."""

    name: str
    kind: str
    seconds: float
    count: float
    tensor_cores: bool | None = None
    operator: str = ""
    shapes: str = ""


@dataclass(frozen=True, slots=True)
class DeepWindow:
    """A profiler window of one rank. All seconds and counts are per step, `classes` and `idle` too.

    On a CPU, `classes` are classes of operators.
    """

    rank: int
    device: Literal["cuda", "cpu"]
    steps: int
    step_s: float
    first_step: int = 0
    hardware: str = ""
    classes: Mapping[str, float] = field(default_factory=dict)
    busy_s: float | None = None
    tensor_core_share: float | None = None
    idle: Mapping[str, float] = field(default_factory=dict)  # seconds of a step by cause; empty if no step was whole
    launches: float | None = None
    mean_kernel_s: float | None = None
    syncs: float | None = None
    sync_s: float | None = None
    pinned_bytes: float = 0.0
    pinned_mb_per_s: float | None = None  # median of large copies
    pinned_least_mb_per_s: float | None = None  # the slowest of these copies
    pinned_most_mb_per_s: float | None = None
    pageable_bytes: float = 0.0
    pageable_s: float = 0.0
    copy_s: float | None = None  # copies and fills in every direction, beside the kernels
    nccl_s: float = 0.0
    nccl_overlap_share: float | None = None
    flops: float | None = None
    attention_s: float | None = None  # computed in parts, forward and backward; None: written before it was looked for
    precision: str = ""  # of most convolutions and matrix products
    rows: tuple[KernelRow, ...] = ()
    trace: str = ""  # name of the file in the run's folder
    cost_s: float | None = None  # time that the window cost the rank beyond its steps
    whole: bool = False  # a trace without steps: every number is of all of it

    @property
    def kernels_s(self) -> float:
        return sum(self.classes.values())


def window_from(stored: Mapping[str, Any]) -> DeepWindow:
    """The window from its `asdict` form. Raises TypeError, ValueError or KeyError on anything else."""
    rows = tuple(KernelRow(**row) for row in stored["rows"])
    window = DeepWindow(**{**stored, "rows": rows})
    if window.device not in ("cuda", "cpu") or window.steps < 1 or not window.step_s > 0:
        raise ValueError("no window")
    for seconds in (*window.classes.values(), *window.idle.values()):
        if not isinstance(seconds, (int, float)):
            raise TypeError("seconds are numbers")
    return window


def deep_facts(windows: tuple[DeepWindow, ...]) -> dict[str, Any]:
    """The windows for the report's facts; empty if no window was opened."""
    return {FACT: [asdict(window) for window in windows]} if windows else {}


def windows_in(facts: Mapping[str, Any]) -> tuple[DeepWindow, ...]:
    """The windows in a report's facts. Entries of another shape are skipped."""
    entries = facts.get(FACT)
    found = []
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        try:
            found.append(window_from(entry))
        except (TypeError, ValueError, KeyError):
            continue
    return tuple(found)


@dataclass(frozen=True, slots=True)
class DeepTable:
    """One window in words. `classes`: class, time per step, share of the kernels' time; copies have no share.

    `rows`: kernel, class, time per step, calls, operator with shapes. `hidden`: number of further rows.
    """

    title: str
    notes: tuple[str, ...]
    classes: tuple[tuple[str, str, str], ...]
    rows: tuple[tuple[str, str, str, str, str], ...]
    hidden: int = 0


def deep_tables(facts: Mapping[str, Any]) -> list[DeepTable]:
    return [_table(window) for window in windows_in(facts)]


def _table(window: DeepWindow) -> DeepTable:
    whole = max(window.kernels_s, 1e-12)
    classes = tuple(
        (CLASS_TITLES.get(name, name), duration(seconds), share(seconds / whole))
        for name, seconds in sorted(window.classes.items(), key=lambda item: -item[1])
        if seconds > 0
    )
    if window.copy_s:
        classes += ((f"{CLASS_TITLES['copy']}, beside the kernels", duration(window.copy_s), ""),)
    rows = tuple(
        (
            row.name,
            CLASS_TITLES.get(row.kind, row.kind) + (", tensor cores" if row.tensor_cores else ""),
            duration(row.seconds),
            number(round(row.count, 1)),
            f"{row.operator} {row.shapes}".strip(),
        )
        for row in window.rows[:ROWS_SHOWN]
    )
    where = window.hardware or {"cuda": "a GPU", "cpu": "the CPU"}[window.device]
    last = window.first_step + window.steps - 1
    steps = f"steps {window.first_step}–{last}" if window.steps > 1 else f"step {window.first_step}"
    return DeepTable(
        f"rank {window.rank} on {where}, {'the whole trace' if window.whole else steps}",
        tuple(_notes(window)),
        classes,
        rows,
        max(0, len(window.rows) - ROWS_SHOWN),
    )


def _notes(window: DeepWindow) -> list[str]:
    each = "in all" if window.whole else "per step"
    lasts = "from its first kernel to its last" if window.whole else "per step while it was profiled"
    notes = [f"{duration(window.step_s)} {lasts}"]
    if window.busy_s is not None:
        notes.append(f"kernels ran {share(window.busy_s / window.step_s)} of the time")
    if window.launches is not None and window.mean_kernel_s is not None:
        notes.append(f"{number(round(window.launches))} kernels {each} of {duration(window.mean_kernel_s)} on average")
    if window.tensor_core_share is not None:
        notes.append(f"tensor cores: {share(window.tensor_core_share)} of convolutions and matrix products")
    idle = [
        f"{duration(seconds)} {_CAUSE_WORDS.get(cause, cause)}"
        for cause, seconds in sorted(window.idle.items(), key=lambda item: -item[1])
        if seconds >= 0.005 * window.step_s
    ]
    notes += [f"{'idle' if window.whole else 'idle in a step'}: {', '.join(idle)}"] if idle else []
    if window.pinned_mb_per_s is not None:
        notes.append(f"large copies from pinned memory reach {number(round(window.pinned_mb_per_s))} MB/s")
    if window.pageable_bytes > 0:
        notes.append(
            f"{quantity(window.pageable_bytes, 'bytes')} {each} copied from pageable memory in {duration(window.pageable_s)}"
        )
    if window.nccl_s > 0 and window.nccl_overlap_share is not None:
        notes.append(f"collectives {duration(window.nccl_s)} {each}, {share(window.nccl_overlap_share)} of it hidden")
    if window.cost_s is not None:
        notes.append(f"looking took the rank {duration(window.cost_s)}, once")
    if window.trace:
        notes.append(f"the trace is {window.trace} in the run's folder")
    return notes
