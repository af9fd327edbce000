"""DAT023, every rank makes all samples of a stream: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES
from rn50_advisor.advisor.model.analysis import Analysis, StreamSplit
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, loader, on_both_ranks, rank
from rule_runs import found
from rule_table import Table, waits
from table_checks import Check, checks

SHARD = "accelerate.data_loader.IterableDatasetShard"


def own(*, of_ranks: bool = True, of_workers: bool = False) -> dict[str, StreamSplit]:
    return {"train.Stream": StreamSplit("/job/stream.py", 9, of_ranks, of_workers)}


OWN = own()


def dat023(
    wait: float = 0.4,
    *,
    data: str = SHARD,
    ranks: int = 2,
    workers: int = 1,
    crowd: float = 0.0,
    job_cores: float = 4.0,
    **more: Any,
) -> Analysis:
    """Ranks with workers that make batches of a stream."""
    values: dict[str, Any] = {
        "fetch.cpu_share": on_both_ranks(0.9),
        "fetch.wall_s": on_both_ranks(1.0),
        "loader.workers": on_both_ranks(1),
        "loader.busy_share": on_both_ranks(1.0),
        "step.run_delay_s": on_both_ranks(crowd),
        "step.batches": on_both_ranks(1.0),
    }
    own = {n: rank(input_wait=wait) for n in range(ranks)}
    values = {name: {n: each[n] for n in own} for name, each in values.items()}
    values |= {"cpu.job_cores": job_cores, "cpu.other_cores": 0.0}
    loaders = tuple(replace(loader(n, workers), dataset={"class": data, "length": None}) for n in own)
    return job(own, values=values, loaders=loaders, **more)


TABLE = Table(
    "DAT023",
    dat023,
    lines={"input_wait": ({"wait": 0.05}, {"wait": 0.0499}), **CROWDED_LINES},
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "a data set of the user's own": {"data": "train.Stream"},
        "one that is divided by its samples": {"data": "datasets.iterable_dataset.IterableDataset"},
        "a single rank": {"ranks": 1},
        "a division of a single rank by ranks": {"ranks": 1, "data": "train.Stream", "stream_splits": OWN},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 42),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_a_stream_of_hugging_face_needs_other_shards() -> None:
    a = dat023(data="datasets.iterable_dataset.IterableDataset")
    loaders = tuple(replace(each, dataset={**each.dataset, "divided_among": 2}) for each in a.loaders)
    finding = found("DAT023", replace(a, loaders=loaders))
    assert finding.title.startswith("Data loading: each of 2 ranks processes the whole stream")
    assert finding.fixes[0].where == Where(SCRIPT, 42) and "num_shards=8" in finding.fixes[0].change


def test_the_ranks_are_counted_and_both_ways_out_are_told() -> None:
    finding = found("DAT023", dat023())
    assert finding.title == "Data loading: each of 2 ranks processes the whole stream and keeps one sample in 2"
    assert "split_dataset_by_node" in finding.fixes[0].change and "dispatch_batches" in finding.fixes[1].change
    assert finding.evidence[1].value == SHARD


def test_half_of_the_batches_work_is_spared_at_best_and_a_quarter_at_worst() -> None:
    saving = found("DAT023", dat023()).saving
    assert saving is not None and 1.0 < saving.speedup[0] < saving.speedup[1] <= 1 / 0.6 + 1e-6


@pytest.mark.parametrize(
    ("split", "ranks", "title"),
    [
        (own(), 2, "each of 2 ranks processes"),
        (own(of_workers=True), 2, "each of 6 workers processes"),
        (own(of_ranks=False, of_workers=True), 1, "each of 3 workers processes"),
    ],
)
def test_a_data_set_that_divides_what_it_has_processed(split: dict[str, StreamSplit], ranks: int, title: str) -> None:
    finding = found("DAT023", dat023(data="train.Stream", stream_splits=split, ranks=ranks, workers=3))
    assert title in finding.title and finding.fixes[0].where == Where("/job/stream.py", 9)
    assert "islice" in finding.fixes[0].change and "files[" in finding.fixes[1].change


def test_where_workers_hold_the_cores_the_wait_for_cores_goes_with_half_of_their_work() -> None:
    ready = found("DAT023", dat023(0.0, crowd=0.4)).saving
    assert ready is not None and ready.speedup == pytest.approx((1 / (1 - 0.4 / 4), 1 / (1 - 0.4 / 2)))
    both, waiting = (found("DAT023", dat023(0.3, crowd=crowd)).saving for crowd in (0.4, 0.0))
    assert both is not None and waiting is not None and both.speedup[1] > waiting.speedup[1]
