"""Memory of torch's allocator on a rank's GPU over the steady steps: parameters, gradients, optimizer state and the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rn50_advisor.advisor.model.wording.quantities import bytes_, counted, numbers, share

FACT = "gpu_memory"
_ROWS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one rank's GPU in bytes; None: not seen. `peak` covers the whole run, as torch counts it."""

    rank: int
    allocated: float  # most that tensors held at the end of a step
    peak: float
    reserved: float
    retries: float
    total: float | None = None
    parameters: float | None = None
    gradients: float | None = None
    state: float | None = None

    @property
    def rest(self) -> float | None:
        """Peak minus parameters, gradients and optimizer state: activations and the job's own tensors. None if unknown."""
        if self.parameters is None:
            return None
        return max(0.0, self.peak - self.parameters - (self.gradients or 0.0) - (self.state or 0.0))

    @property
    def fragmentation(self) -> float:
        """1 - peak / reserved: the share that tensors never used at once, because it is cached or fragmented."""
        return max(0.0, 1.0 - self.peak / self.reserved) if self.reserved else 0.0

    @property
    def words(self) -> str:
        whole = f", {share(self.peak / self.total)} of the GPU" if self.total else ""
        tensors = [
            f"{bytes_(value)} {what}"
            for what, value in (
                ("activations and the rest", self.rest),
                ("parameters", self.parameters),
                ("gradients", self.gradients),
                ("optimizer state", self.state),
            )
            if value
        ]
        parts = [f"tensors {bytes_(self.peak)} at their peak{whole}" + (f" ({', '.join(tensors)})" if tensors else "")]
        parts.append(f"{bytes_(self.allocated)} at the end of steps")
        parts.append(f"{bytes_(self.reserved)} reserved, {share(self.fragmentation)} of it never used")
        if self.retries:
            parts.append(f"{counted(round(self.retries), 'allocation')} emptied the cache first")
        return "; ".join(parts)


def memory_facts(found: Sequence[DeviceMemory]) -> dict[str, Any]:
    """GPU memory for the report's facts; empty if no rank trains on a GPU."""
    return {FACT: [asdict(each) for each in found]} if found else {}


def memory_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Label and text for ranks' GPU memory in a report's facts, alike ranks together. Entries of another shape are skipped."""
    entries = facts.get(FACT)
    ranks_of: dict[str, list[int]] = {}
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        try:
            found = DeviceMemory(**entry)
            ranks_of.setdefault(found.words, []).append(int(found.rank))
        except (TypeError, ValueError):
            continue
    rows = [
        (f"memory of rank{'s' if len(ranks) > 1 else ''} {numbers(sorted(ranks))}", words)
        for words, ranks in ranks_of.items()
    ]
    hidden = sum(len(ranks) for ranks in list(ranks_of.values())[_ROWS_SHOWN:])
    return [
        *rows[:_ROWS_SHOWN],
        *([("memory of other ranks", f"{hidden} more ranks are in the JSON report")] if hidden else []),
    ]
