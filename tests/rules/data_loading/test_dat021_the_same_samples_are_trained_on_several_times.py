"""DAT021, the same samples are trained on several times: its table and its advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import all_words, found
from rule_table import Table
from table_checks import Check, checks

STREAM = "_InfiniteConstantSampler"
DIGESTS = tuple(range(100, 116))
IN_TURNS = tuple(number // 2 for number in range(16))  # each batch twice: of two workers


def dat021(
    *lists: Sequence[int],
    ranks: int = 2,
    ddp: int | None = None,
    loader: Mapping[str, Any] = {},
    more_facts: Mapping[str, Any] = {},
    **more: Any,
) -> Analysis:
    """Ranks whose loaders gave these batches; `ddp`: the ranks of their model, 0 without one."""
    lists = lists or (DIGESTS,) * ranks
    facts = {}
    for number, digests in enumerate(lists):
        own = {"id": 3, "training": True, "file": "/job/train.py", "line": 21, "sampler": "RandomSampler"}
        own |= {"shuffle": True, "num_workers": 2, "batch_size": 8, "dataset": {"class": "data.Stream"}, **loader}
        wrapped = len(lists) if ddp is None else ddp
        known: dict[str, Any] = {"loaders": [{"id": 0, "training": False}, own]}
        known |= {"ddp": [{"world_size": wrapped}]} if wrapped else {}
        known |= {"first_batches": {"loader": 3, "digests": list(digests)}} if digests else {}
        facts[str(number)] = {**known, **more_facts}
    return job({number: rank() for number in range(len(lists))}, **{"facts": facts, **more})


def of_workers(digests: Sequence[int] = IN_TURNS, workers: int = 2, **more: Any) -> dict[str, Any]:
    """One rank with a stream."""
    return {"ddp": 0, "loader": {"sampler": STREAM, "num_workers": workers, "shuffle": None}, **more, "one": digests}


def case(one: Sequence[int] | None = None, two: Sequence[int] | None = None, **given: Any) -> Analysis:
    return dat021(*(digests for digests in (one, two) if digests is not None), **given)


def changed(*places: int) -> list[int]:
    """The other rank's batches, with others in these places."""
    return [-digest if place in places else digest for place, digest in enumerate(DIGESTS)]


TABLE = Table(
    "DAT021",
    case,
    where=Where("/job/train.py", 21),
    lines={
        "alike": ({"one": DIGESTS, "two": changed(3)}, {"one": DIGESTS, "two": changed(3, 8)}),
        "batches": ({"one": DIGESTS[:6], "two": DIGESTS}, {"one": DIGESTS, "two": DIGESTS[:5]}),
        "different": ({"one": [1, 2, 3, 4] * 4, "two": [1, 2, 3, 4] * 4}, {"one": [1, 2, 3] * 5, "two": [1, 2, 3] * 5}),
        "rounds": (of_workers(IN_TURNS[:7]), of_workers(IN_TURNS[:5])),
    },
    also_fires={
        "workers of one rank": of_workers(),
        "workers after a look at the first batch": of_workers((0, *IN_TURNS)),
        "five workers": of_workers([number // 5 for number in range(16)], 5),
        "workers and ranks": {"loader": {"sampler": STREAM}, "one": IN_TURNS, "two": IN_TURNS},
        "a convolution that gets whole batches": {"more_facts": {"conv": {"shape": [8, 3, 32, 32]}}},
        "metrics of all ranks": {"more_facts": {"collectives": [{"group_size": 2, "kind": "all_gather"}]}},
    },
    false_alarms={
        "samples of their own": {"one": DIGESTS, "two": changed(*range(16))},
        "data that is always the same": {"one": [7] * 16, "two": [7] * 16},
        "data made up, with a sampler that divides it": {"loader": {"sampler": "DistributedSampler"}},
        "a sampler of a library that divides it": {"loader": {"sampler": "DistributedSamplerWrapper"}},
        "no model of all ranks": {"ddp": 0},
        "models of smaller groups": {"ranks": 4, "ddp": 2},
        "a group that divides batches": {
            "ranks": 4,
            "more_facts": {"collectives": [{"group_size": 2, "kind": "all_gather"}]},
        },
        "sequences that change hands": {"more_facts": {"collectives": [{"group_size": 0, "kind": "all_to_all"}]}},
        "batches cut before the model": {"more_facts": {"conv": {"shape": [4, 3, 32, 32]}}},
        "a loader that evaluates": {"loader": {"training": False}, "ddp": 0},
        "one rank": {"ranks": 1},
        "one rank whose second list is missing": {"one": DIGESTS, "two": ()},
        "a worker of a stream": of_workers(workers=1),
        "workers of a list of samples": of_workers(loader={"sampler": "SequentialSampler", "num_workers": 2}),
        "workers with shards of their own": of_workers(DIGESTS),
        "workers whose batches are always the same": of_workers([7] * 16),
        "workers that are alike by chance": of_workers([1, 1, 2, 2, 3, 4, 5, 5]),
        "three workers, of which two are alike": of_workers([1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8], 3),
    },
    not_measured={
        "tensors on a GPU": ({"one": (), "two": ()}, ("first_batches",)),
        "no facts": ({"facts": {}}, ("first_batches",)),
        "a loader of another library": ({"loader": {"library": "ffcv"}}, ("first_batches",)),
    },
    severities=(({}, "high"), (of_workers(), "high")),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat021_says_how_much_longer_an_epoch_is() -> None:
    words = all_words(found("DAT021", dat021(ranks=4)))
    assert "16 of the first 16 batches" in words and "All 4 ranks" in words and "4 times the steps" in words
    assert "twice the steps" in all_words(found("DAT021", case(**of_workers())))


def test_dat021_tells_ranks_that_share_their_batches_in_pairs() -> None:
    other = changed(*range(16))
    finding = found("DAT021", dat021(DIGESTS, other, DIGESTS, other))
    assert finding.title == "2 of 4 ranks train on each batch"
    assert "ranks 0, 2, and on ranks 1, 3" in finding.evidence[0].note


def test_dat021_is_silent_about_one_pair_among_ranks_of_their_own() -> None:
    with pytest.raises(AssertionError):
        found("DAT021", dat021(DIGESTS, DIGESTS, changed(*range(16)), range(50, 66)))


@pytest.mark.parametrize(
    ("loader", "change"),
    [
        (
            {},
            "DataLoader(..., sampler=DistributedSampler(dataset)) in place of shuffle=True, and sampler.set_epoch(epoch)",
        ),
        (
            {"sampler": "SequentialSampler", "shuffle": False},
            "DataLoader(..., sampler=DistributedSampler(dataset, shuffle=False))",
        ),
        ({"batch_sampler": "Buckets"}, "let Buckets draw only this rank's share"),
        ({"sampler": "WeightedRandomSampler"}, "let WeightedRandomSampler draw only this rank's share"),
        (
            {"sampler": STREAM, "num_workers": 0},
            "in Stream.__iter__: itertools.islice(samples, rank, None, world_size)",
        ),
        ({"sampler": STREAM}, "rank * info.num_workers + info.id, None, world_size * info.num_workers"),
    ],
)
def test_dat021_divides_samples_where_they_are_drawn(loader: dict[str, Any], change: str) -> None:
    [fix] = found("DAT021", dat021(loader=loader)).fixes
    assert change in fix.change


def test_dat021_divides_the_stream_of_one_rank_among_its_workers() -> None:
    [fix] = found("DAT021", case(**of_workers())).fixes
    assert "info.id, None, info.num_workers" in fix.change and "world_size" not in fix.change


def test_dat021_names_the_ranks_whose_workers_are_alike() -> None:
    finding = found("DAT021", dat021(DIGESTS, IN_TURNS, loader={"sampler": STREAM}))
    assert finding.scope.ranks == (1,)
