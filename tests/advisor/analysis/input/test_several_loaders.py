"""Several loaders that feed one step: what is reported of loading concerns the one whose batches the step waits for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import batches, folded, plan, recording, series, steady_counter
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.recording import Table
from rn50_advisor.advisor.verdict.diagnose import diagnose

LABELLED = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 1, "batch_size": 8}
UNLABELLED = {**LABELLED, "id": 1, "line": 60, "num_workers": 2, "batch_size": 56}
# each step takes a batch of both, the unlabelled one last
TOGETHER = {"input_wait": 60, "micro_batches": 2, "samples": 64, "loader": 1}


def made(loader: int, wall: float, *, workers: int = 1, **given: Any) -> list[dict[str, float]]:
    """A batch for each of the steps, which take 150 ms."""
    row = {"loader": loader, "wall": wall, "cpu": 0.9 * wall, "wait": 150 * workers - wall, **given}
    return [
        {**row, "start": 0.15 * n, "worker": n % workers, "pid": 200 + 10 * loader + n % workers} for n in range(30)
    ]


def fed(rows: Table, *loaders: dict[str, Any], steps: dict[str, float] | None = None) -> Analysis:
    facts = {100: {"loaders": list(loaders or (LABELLED, UNLABELLED))}}
    return analyse(recording({0: plan(30, **(steps or TOGETHER))}, batches={0: rows}, facts=facts))


def loader_of(analysis: Analysis) -> LoaderFacts:
    loader = analysis.training_loader(0)
    assert loader is not None
    return loader


@pytest.mark.filterwarnings("error")
def test_of_steps_that_are_kept_in_windows_alone_nobody_knows_which_loader_came_last() -> None:
    facts = {100: {"loaders": [LABELLED, UNLABELLED]}}
    whole = recording({0: plan(200, **TOGETHER)}, facts=facts)
    assert not loader_of(analyse(replace(whole, steps={0: folded(whole.steps[0], 0, 200)}))).beside


@pytest.mark.parametrize(
    ("labelled_ms", "unlabelled_ms", "line"),
    [
        pytest.param(140, 10, 42, id="the first one starves behind a cheap second one"),
        pytest.param(10, 280, 60, id="a dear second one"),
        pytest.param(130, 280, 60, id="both are slow: the slower one"),
        pytest.param(150, 280, 42, id="by what its workers need for a step, not by its batches"),
    ],
)
def test_of_two_loaders_the_step_waits_for_the_slower_one(labelled_ms: float, unlabelled_ms: float, line: int) -> None:
    analysis = fed(batches([*made(0, labelled_ms), *made(1, unlabelled_ms, workers=2)]))
    loader, took = loader_of(analysis), labelled_ms if line == 42 else unlabelled_ms
    assert (loader.line, loader.beside, loader.per_step) == (line, 1, pytest.approx(1.0, rel=0.05))
    assert analysis.value("fetch.wall_s", 0) == pytest.approx(took / 1e3)
    assert analysis.workers is not None
    feed = analysis.workers.feeds[0]
    assert feed.batches == pytest.approx(1.0, rel=0.05) and feed.workers == loader.num_workers
    assert sum(feed.computing_s) / len(feed.computing_s) == pytest.approx(0.9 * took / 1e3)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_verdict_names_the_loader_that_starves_the_step(slow: int) -> None:
    loaders = [{**LABELLED, "num_workers": 1}, {**UNLABELLED, "num_workers": 1}]
    cores = {("cpu.allowed_cores", "job"): series((0, 8.0)), ("cpu.cores", "host"): series((0, 8.0))}
    busy = {("job.cpu_s", "job"): steady_counter(1.6), ("cpu.busy_s", "host"): steady_counter(1.6)}
    made_by = recording(
        {0: plan(30, **TOGETHER)},
        batches={0: batches([*made(slow, 145), *made(1 - slow, 10)])},
        facts={100: {"loaders": loaders}},
        samples={**cores, **busy},
    )
    verdict, [finding] = (report := diagnose(made_by)).verdict, [f for f in report.findings if f.rule == "DAT004"]
    assert verdict.rule == "DAT004"
    where = finding.fixes[0].where
    assert where is not None and where.line == (42, 60)[slow]
    assert "2 loaders feed each" in str(finding.evidence[0].note)


def test_what_a_stage_could_deliver_is_in_samples_of_the_step() -> None:
    [stage] = [
        c for c in fed(batches([*made(0, 140), *made(1, 10, workers=2)])).capacities if c.stage == "preprocessing"
    ]
    assert stage.samples_per_s == pytest.approx(64 / 0.140, rel=0.05), "64 samples with each labelled batch"


def test_a_sample_of_old_batches_gives_the_same_result() -> None:
    thinned = fed(batches([*made(0, 140)[::4], *made(1, 10, workers=2)[::4]]))
    assert (loader_of(thinned).line, loader_of(thinned).per_step) == (42, pytest.approx(1.0, rel=0.05))


@pytest.mark.parametrize(("fetch", "line"), [(40, 42), (145, 60)])
def test_one_of_them_may_load_in_the_training_process(fetch: float, line: int) -> None:
    steps = {**TOGETHER, "input_wait": 150, "fetches": 1, "fetch": fetch, "fetch_cpu": fetch}
    analysis = fed(batches(made(0, 140)), LABELLED, {**UNLABELLED, "num_workers": 0}, steps=steps)
    assert (loader_of(analysis).line, loader_of(analysis).per_step) == (line, pytest.approx(1.0))
    assert analysis.value("fetch.wall_s", 0) == pytest.approx((140 if line == 42 else fetch) / 1e3)
    assert analysis.value("loader.workers", 0) == (1 if line == 42 else 0)


@pytest.mark.parametrize(
    ("steps", "rows"),
    [
        pytest.param({**TOGETHER, "micro_batches": 1}, [*made(0, 140), *made(1, 10)], id="one batch a step"),
        pytest.param(TOGETHER, made(1, 10), id="the other one made nothing"),
        pytest.param(TOGETHER, [*made(0, 140)[:9], *made(1, 10)], id="what it made ahead for another stage"),
        pytest.param({**TOGETHER, "loader": -1}, [*made(0, 140), *made(1, 10)], id="nobody knows which came last"),
    ],
)
def test_loaders_that_do_not_feed_the_same_steps_are_not_compared(
    steps: dict[str, float], rows: list[dict[str, float]]
) -> None:
    loader = loader_of(fed(batches(rows), steps=steps))
    assert (loader.line, loader.beside, loader.per_step) == (60, 0, None), "the last one"


def test_loaders_that_take_turns_are_not_compared() -> None:
    own = [{**step, "loader": n % 2} for n, step in enumerate(plan(30, **TOGETHER))]
    rows = batches([*made(0, 140), *made(1, 10)])
    analysis = analyse(recording({0: own}, batches={0: rows}, facts={100: {"loaders": [LABELLED, UNLABELLED]}}))
    assert loader_of(analysis).beside == 0


def dispatched(*, split: bool = False, micro_batches: int = 1, workers: int = 0) -> Analysis:
    """Two ranks: rank 0 makes two batches of 8 in 40 ms each, or one of 16, and sends each rank 8 of the samples."""
    loader = {**LABELLED, "num_workers": workers, "dispatches": True, "split_batches": split}
    waited = {"input_wait": 90, "micro_batches": micro_batches, "samples": 8 * micro_batches}
    fetched = (1 if split else 2) * micro_batches
    loads = {} if workers else {"fetches": fetched, "fetch": 40 * fetched, "fetch_cpu": 40 * fetched}
    return analyse(
        recording(
            {0: plan(30, **waited, **loads), 1: plan(30, **waited)},
            facts={100 + rank: {"loaders": [loader], "world_size": 2} for rank in range(2)},
            batches={0: batches(made(0, 140)), 1: batches(made(0, 140)[:2])} if workers else {},
        )
    )


@pytest.mark.parametrize(("options", "per_step"), [({}, 2), ({"split": True}, 1), ({"micro_batches": 3}, 6)])
def test_rank_0_makes_the_batches_that_it_sends_to_all_ranks(options: dict[str, Any], per_step: float) -> None:
    analysis = dispatched(**options)
    assert loader_of(analysis).per_step == pytest.approx(per_step)
    assert analysis.value("fetch.wall_s", 0) == pytest.approx(0.040)
    assert analysis.get("fetch.wall_s", 1) is None
    assert analysis.workers is not None and set(analysis.workers.feeds) == {0}


def test_what_rank_0_sends_counts_once_over_all_ranks() -> None:
    analysis = dispatched()
    step_s = analysis.value("step.time_s")
    assert analysis.throughput.samples_per_s == pytest.approx(16 / step_s, rel=0.05)
    [stage] = [c for c in analysis.capacities if c.stage == "preprocessing"]
    assert stage.samples_per_s == pytest.approx(16 / 0.080, rel=0.05), "of one process, which makes all samples"


def test_the_broadcast_is_part_of_the_wait_for_dispatched_batches() -> None:
    """Loading that explains less than half of another loader's wait is not what the loop waits for."""
    assert dispatched(split=True).value("fetch.wall_s", 0) == pytest.approx(0.040)


def test_batches_of_workers_whose_rank_sends_them_on_are_not_followed_to_the_loop() -> None:
    analysis = dispatched(workers=1)
    assert "batches of all ranks" in analysis.missing["fetch.hand_over_s"]
    assert analysis.value("fetch.wall_s", 0) == pytest.approx(0.140)
    assert analysis.get("fetch.wall_s", 1) is None
