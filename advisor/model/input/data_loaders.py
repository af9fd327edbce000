"""The DataLoaders of a job, and the one that feeds a rank's training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rn50_advisor.probes.documents.rank_documents import MountFacts

_HELPING_SHARE_MAX = 0.99
# With num_workers=0, DataLoader raises an error for arguments that only workers need.
NO_WORKERS = CallChange(
    "DataLoader",
    (("num_workers", 0),),
    without=("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"),
)


def within(dataset: DescribedDataset) -> Iterator[DescribedDataset]:
    """A data set and all that it wraps or concatenates."""
    yield dataset
    for inside in (*([dataset["inner"]] if "inner" in dataset else ()), *dataset.get("parts", ())):
        yield from within(inside)


@dataclass(frozen=True, slots=True)
class LoaderFacts:
    """One DataLoader of the job, as constructed."""

    rank: int
    id: int
    training: bool | None
    file: str
    line: int
    num_workers: int
    batch_size: int | None
    persistent_workers: bool
    pin_memory: bool
    dataset: DescribedDataset
    mount: MountFacts | None = None
    prefetch_factor: int | None = None
    batch_bytes: int | None = None  # of the tensors of its first batch
    batch_tensors: int | None = None  # their number
    library: str = ""  # set for another library's loader, whose workers are unknown
    # Set only for the slowest of several loaders that feed the same steps, and on rank 0 for one that dispatches: batches per step.
    per_step: float | None = None
    beside: int = 0  # number of the other loaders that feed the same steps; 0 unless this one is the slowest of them
    collate: str | None = None  # name of the function
    collate_file: str = ""  # empty unless the function is the user's
    collate_line: int = 0
    batch_sampler: str | None = None  # its class if it is not torch's own
    shuffle: bool | None = None  # None: unknown
    made: int = 1  # number of times it was constructed at this line for the same data
    fetch_file: str = ""  # the user's line that takes its batches; empty: unknown
    fetch_line: int = 0
    dispatches: bool = False  # rank 0 loads the batches of all ranks and sends them
    split_batches: bool = False  # it then divides each batch among them

    @property
    def lives_on(self) -> bool:
        """True if its workers stay alive from epoch to epoch."""
        return self.persistent_workers and self.made <= 1


def training_loader(loaders: Sequence[LoaderFacts], rank: int) -> LoaderFacts | None:
    """The loader that feeds a rank's training; None if unknown.

    It is the slowest of several that feed the same steps, else the last one known to train, else the rank's only loader.
    """
    own = [loader for loader in loaders if loader.rank == rank]
    known = [loader for loader in own if loader.training]
    slowest = [loader for loader in known if loader.beside]
    return (slowest or known)[-1] if known else own[0] if len(own) == 1 else None


def with_helpers_s(making_s: float, helping: float | None) -> float:
    """CPU seconds of all threads of a worker.

    `making_s`: those of the thread that makes batches. `helping`: share of the other threads in the total.
    """
    return making_s / (1.0 - min(helping or 0.0, _HELPING_SHARE_MAX))
