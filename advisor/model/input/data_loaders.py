"""The DataLoaders of a job, and which of them feeds a rank's training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rn50_advisor.probes.documents.rank_documents import MountFacts

_HELPING_MOST = 0.9  # of a worker's CPU time, what threads beside the one that makes batches are believed to take
# With num_workers=0 a DataLoader refuses to be made with what only workers need.
NO_WORKERS = CallChange(
    "DataLoader",
    (("num_workers", 0),),
    without=("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context"),
)


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
    batch_bytes: int | None = None  # of its first batch's tensors
    library: str = ""  # of another library's loader: what stands above of its workers is not known
    # of several that feed the same steps the one that these wait for: how many of its batches each takes, and how many others there are
    per_step: float | None = None
    beside: int = 0
    collate: str | None = None  # name of the function
    batch_sampler: str | None = None  # class of one that is not torch's own
    shuffle: bool | None = None  # None: unknown
    made: int = 1  # how often, at the same line for the same data

    @property
    def lives_on(self) -> bool:
        """Its workers stay from epoch to epoch."""
        return self.persistent_workers and self.made <= 1


def training_loader(loaders: Sequence[LoaderFacts], rank: int) -> LoaderFacts | None:
    """The loader that feeds a rank's training: of several at a time the slowest, else the last one known to, else the only one."""
    mine = [loader for loader in loaders if loader.rank == rank]
    known = [loader for loader in mine if loader.training]
    slowest = [loader for loader in known if loader.beside]
    return (slowest or known)[-1] if known else mine[0] if len(mine) == 1 else None


def with_helpers_s(making_s: float, helping: float | None) -> float:
    """CPU seconds of all threads of a worker, from those of the one that makes batches and the share of the others in them all."""
    return making_s / (1.0 - min(helping or 0.0, _HELPING_MOST))
