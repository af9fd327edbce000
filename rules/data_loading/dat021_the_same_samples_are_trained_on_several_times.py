"""Duplicate samples across ranks or workers.

What it does: finds ranks of one DistributedDataParallel that train on the same batches, as without a DistributedSampler, and
workers of an IterableDataset that each yield the whole stream.

Fires when: ≥ 90 % of the first batches are the same on several ranks, or each worker of a stream brings the same batch in
its turn.

Why it is slow: no step gets longer, but an epoch has several times the steps that it needs. With the same batches on all
ranks, the mean of their gradients is the gradient of one: the other GPUs add nothing.

Evidence: check sums of the first batches of the first training loader, taken by each rank as they came: numbers from all over their
largest tensors. Settings of the loader alone decide nothing.

Fix: `DistributedSampler(dataset)` in the loader, and its `set_epoch` in each epoch; in an IterableDataset each rank and each worker
takes every n-th item.

Estimate: none for the step. An epoch takes 1/n of the steps if n ranks or workers had the same samples; learning rate and
schedule may have to follow, because the batches of all ranks together become n times as large.

False alarms: the rule is silent about batches that hardly change, about ranks of a smaller group than all, about jobs that exchange more
than gradients (a sequence divided among ranks), and about batches that are cut before the first convolution. It cannot see
what else is done after the loader (another way of dividing a batch, random changes on each GPU), nor that data was made up for a
benchmark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.probes.documents.loader_documents import RecordedLoader
from rn50_advisor.probes.documents.model_documents import LayerFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.rules.analysis_reading import copies_of_one_model
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_STREAM = "_InfiniteConstantSampler"  # torch's sampler for an IterableDataset
_LOOKED_AT = (0, 1)  # batches taken before the loop, as for a picture of the model: the workers begin anew after it


@dataclass(frozen=True, slots=True)
class _Fed:
    """A rank's training loader, and the check sums of its first batches."""

    loader: RecordedLoader
    digests: Sequence[int]


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    facts = a.rank_facts
    together, shared = copies_of_one_model(a), any(map(_workers_of_a_stream, facts.values()))
    if facts and not together and not shared:
        return Clear(RULE.id)
    fed = {rank: found for rank in facts if (found := _fed(facts[rank])) is not None}
    if not fed:
        return NotMeasured(RULE.id, ("first_batches",))
    alike = _ranks_alike(a, fed, t) if together else []
    workers = {rank: count for rank in fed if (count := _workers_alike(fed[rank], t))}
    if not alike and not workers:
        return Clear(RULE.id)
    first = fed[min(workers) if not alike else alike[0][0]]
    evidence = [*([_of_ranks(fed, alike, t)] if alike else []), *([_of_workers(workers)] if workers else [])]
    ranks = () if alike or len(workers) == len(facts) else tuple(workers)
    return Finding(
        rule=RULE.id,
        title=_title(alike, workers),
        severity="high",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(ranks=ranks),
        evidence=tuple(evidence),
        fixes=(_fix(first.loader, ranks=bool(alike), workers=bool(workers)),),
    )


def _fed(facts: RankFacts) -> _Fed | None:
    found = facts.get("first_batches")
    loaders = facts.get("loaders", ())
    loader = next((one for one in loaders if found and one.get("id") == found["loader"]), None)
    if found is None or loader is None or not loader.get("training") or loader.get("library"):
        return None
    return _Fed(loader, found["digests"])


def _ranks_alike(a: Analysis, fed: Mapping[int, _Fed], t: Thresholds) -> list[list[int]]:
    """Groups of ranks with the same batches, all of one size; none if they are not sure to train on the same samples."""
    if len(fed) != a.world_size or any("Distributed" in one.loader.get("sampler", "") for one in fed.values()):
        return []
    groups: list[list[int]] = []
    for rank in sorted(fed):
        same = (group for group in groups if _share(fed[group[0]], fed[rank], t) >= t["alike"])
        group = next(same, None)
        if group is None:
            groups.append([rank])
        else:
            group.append(rank)
    size = len(groups[0])
    if size < 2 or any(len(group) != size for group in groups):
        return []
    cut = any(_is_cut(a.rank_facts[rank].get("conv", LayerFacts()), fed[rank].loader, size) for rank in fed)
    return [] if cut else groups


def _share(one: _Fed, other: _Fed, t: Thresholds) -> float:
    """The share of the first batches that are the same; 0.0 if there are too few, or too few different ones."""
    pairs = list(zip(one.digests, other.digests, strict=False))
    if len(pairs) < t["batches"] or len({digest for digest, _ in pairs}) < t["different"]:
        return 0.0
    return sum(first == second for first, second in pairs) / len(pairs)


def _is_cut(conv: LayerFacts, loader: RecordedLoader, ranks: int) -> bool:
    """True if the first convolution gets only this rank's part of a batch."""
    size, shape = loader.get("batch_size"), conv.get("shape")
    return isinstance(size, int) and shape is not None and len(shape) > 0 and shape[0] * ranks <= size


def _workers_of_a_stream(facts: RankFacts) -> bool:
    loaders = facts.get("loaders", ())
    return any(loader.get("training") and _workers(loader) > 1 for loader in loaders)


def _workers(loader: RecordedLoader) -> int:
    return (loader.get("num_workers") or 0) if loader.get("sampler") == _STREAM else 0


def _workers_alike(fed: _Fed, t: Thresholds) -> int:
    """The workers of a stream that all bring the same batch in their turn; 0 if they do not."""
    count = _workers(fed.loader)
    return count if count > 1 and any(_in_rounds(fed.digests[skipped:], count, t) for skipped in _LOOKED_AT) else 0


def _in_rounds(digests: Sequence[int], workers: int, t: Thresholds) -> bool:
    rounds = [set(digests[at : at + workers]) for at in range(0, len(digests) - workers + 1, workers)]
    changes = all(before != after for before, after in pairwise(rounds))
    return len(rounds) >= t["rounds"] and changes and all(len(of_round) == 1 for of_round in rounds)


def _title(alike: Sequence[Sequence[int]], workers: Mapping[int, int]) -> str:
    parts = []
    if alike:
        ranks, of_group = sum(map(len, alike)), len(alike[0])
        one_group, several = (
            f"{_all(ranks)} ranks train on the same batches",
            f"{of_group} of {ranks} ranks train on each batch",
        )
        parts.append(one_group if ranks == of_group else several)
    if workers:
        parts.append(f"{_all(max(workers.values()))} loader workers yield the same samples")
    text = ", and ".join(parts)
    return text[0].upper() + text[1:]


def _all(count: int) -> str:
    return "both" if count == 2 else f"all {count}"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _of_ranks(fed: Mapping[int, _Fed], alike: Sequence[Sequence[int]], t: Thresholds) -> Evidence:
    first, second = (fed[rank].digests for rank in alike[0][:2])
    pairs = list(zip(first, second, strict=False))
    same = sum(one == other for one, other in pairs)
    which = ", and on ".join(f"ranks {numbers(group)}" for group in alike[:4])
    note = (
        f"{same} of the first {len(pairs)} batches are the same on {which}: their gradients are those of one rank, "
        f"and an epoch takes {_times(len(alike[0]))} the steps that it needs"
    )
    return Evidence("same batches", round(same / len(pairs), 3), "", t["alike"], note)


def _of_workers(workers: Mapping[int, int]) -> Evidence:
    often = _times(max(workers.values()))
    note = (
        f"each batch comes {often} in a row, once from each worker: an epoch holds every sample {often} "
        f"and takes {often} the steps that it needs"
    )
    return Evidence("workers with the same batches", max(workers.values()), "", None, note)


def _fix(loader: RecordedLoader, *, ranks: bool, workers: bool) -> Fix:
    where = Where(loader["file"], loader["line"]) if loader.get("file") and "line" in loader else None
    if loader.get("sampler") != _STREAM:
        return Fix("shard the samples across ranks: DistributedSampler", _sampler(loader), where, "small change")
    name = loader.get("dataset", {}).get("class", "the data set").rpartition(".")[2]
    place = f"in {name}.__iter__: "
    if not ranks:
        return Fix(
            "shard the stream across workers",
            f"{place}info = get_worker_info(); itertools.islice(samples, info.id, None, info.num_workers)",
            where,
            "small change",
        )
    handed = "hand dist.get_rank() and dist.get_world_size() to the data set, since its workers belong to no group; "
    if not workers and not _workers(loader):
        return Fix(
            "shard the stream across ranks",
            f"{handed}{place}itertools.islice(samples, rank, None, world_size)",
            where,
            "small change",
        )
    return Fix(
        "shard the stream across ranks and workers",
        f"{handed}{place}info = get_worker_info(); itertools.islice(samples, rank * info.num_workers + info.id, None, "
        "world_size * info.num_workers)",
        where,
        "small change",
    )


def _sampler(loader: RecordedLoader) -> str:
    drawn = loader.get("sampler", "")
    own = loader.get("batch_sampler") or ("" if drawn in ("RandomSampler", "SequentialSampler") else drawn)
    if own:
        return f"let {own} draw only this rank's share, as DistributedSampler(dataset) does"
    if not loader.get("shuffle"):
        return "DataLoader(..., sampler=DistributedSampler(dataset, shuffle=False))"
    made = "DataLoader(..., sampler=DistributedSampler(dataset)) in place of shuffle=True"
    return f"{made}, and sampler.set_epoch(epoch) before each epoch"


RULE = rule(
    __name__,
    "Duplicate samples across ranks or workers",
    check,
    severities=("high",),
    needs=(STEP_TIME_S,),
    thresholds={
        "alike": Threshold(0.9, "of the batches that both ranks counted: single ones may be alike by chance"),
        "batches": Threshold(6, "that both ranks counted: fewer may be alike by chance"),
        "different": Threshold(4, "batches among them: data that is always the same says nothing"),
        "rounds": Threshold(3, "in which each worker brings one batch"),
    },
)
