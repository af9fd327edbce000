"""The source of batches of a training loop that uses no torch loader, as far as it can be determined."""

from __future__ import annotations

from dataclasses import dataclass

from rn50_advisor.advisor.model.findings import Where


@dataclass(frozen=True, slots=True)
class FeedSamples:
    """Stack samples of a training thread without a loader, between optimizer and backward: shares by what the thread was doing."""

    count: int
    fetching: float  # share inside a library that makes batches
    waiting: float  # share in a wait for another thread, a process or a file
    model: float  # share inside the model
    library: str = ""  # library found most often
    where: Where | None = None  # the user's line found most often outside the model
    function: str = ""

    @property
    def elsewhere(self) -> float:
        return max(0.0, 1.0 - self.fetching - self.waiting - self.model)


@dataclass(frozen=True, slots=True)
class InputSource:
    """The source of batches of ranks that no torch loader feeds.

    If `measured`, the library's iterator was timed: the input wait is known, but not how batches are made. Otherwise everything from
    optimizer to backward is one chunk, and fetch and forward cannot be separated.
    """

    library: str  # empty if unknown
    measured: bool
    where: Where | None = None
    libraries: tuple[str, ...] = ()  # libraries loaded by the ranks that can make batches
    another_thread: bool = False  # a thread that does not train fetches from a DataLoader
    chunk_s: float = 0.0  # per step, of the rank with the longest chunk
    # part of the chunk without computing or waiting for a core; None if the rank may be waiting for a GPU
    blocked_s: float | None = None
    samples: FeedSamples | None = None

    @property
    def why_unknown(self) -> str:
        """The reason why the wait for input is not measured, as a sentence."""
        source = f" (loaded: {', '.join(self.libraries)})" if self.libraries else ""
        if self.samples is not None and self.samples.library:
            source = f": they come from {self.samples.library}"
        elif self.another_thread:
            source = ": a thread of its own runs through a DataLoader"
        return f"this loop's batches do not come from torch's loaders{source}; fetching and forward cannot be separated"
