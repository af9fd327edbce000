"""Ranks whose data sets give them different numbers of batches: the one with fewest leaves the others in the middle of an exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Evidence, Fix, Where

# A rank that has run out may be about to start its next epoch.
_NEAR_END_STEPS = 1


@dataclass(frozen=True, slots=True)
class UnevenData:
    """`rank` has the fewest batches, and its step is where they end."""

    rank: int
    batches: int
    most: int
    where: Where

    @property
    def evidence(self) -> Evidence:
        note = f"another rank has {self.most:,}; its data set ends at this step"
        return Evidence("batches of an epoch", float(self.batches), "", None, f"rank {self.rank}: {note}")

    @property
    def fix(self) -> Fix:
        change = "DistributedSampler over one data set, the same number of samples for each rank, or `with Join([model]):` around the loop"
        return Fix(
            f"provide the same number of batches to all ranks: rank {self.rank} ran out",
            change,
            self.where,
            "small change",
        )


def uneven_data(a: Analysis, steps: Mapping[int, int]) -> UnevenData | None:
    """The rank that has run out of batches; `steps`: of each rank when the job hung or failed."""
    loaders = {rank: loader for rank in steps if (loader := a.training_loader(rank)) is not None}
    batches = {rank: made for rank, loader in loaders.items() if (made := _batches(loader)) is not None}
    if len(batches) < 2 or len({loaders[rank].batch_size for rank in batches}) != 1:
        return None
    fewest = min(batches, key=lambda rank: batches[rank])
    most, left = max(batches.values()), steps[fewest] % max(batches[fewest], 1)
    at_end = min(left, batches[fewest] - left) <= _NEAR_END_STEPS and steps[fewest] >= batches[fewest] - _NEAR_END_STEPS
    if most == batches[fewest] or not at_end:
        return None
    return UnevenData(fewest, batches[fewest], most, Where(loaders[fewest].file, loaders[fewest].line))


def _batches(loader: LoaderFacts) -> int | None:
    """Whole batches of an epoch; None if the data set's length or its sampler is unknown."""
    length = loader.dataset.get("length")
    if not length or not loader.batch_size or loader.batch_sampler is not None or loader.library:
        return None
    return int(length) // loader.batch_size
