"""Which batch a fetch waited for: made late, handed over late, or behind a slow one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from recordings import batches, plan, recording, spans
from rn50_advisor.advisor.analysis.input.delivery import delivery
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_EPOCH_START

STEP_S = 0.1
TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}
NAMES = ("fetch.hand_over_s", "fetch.behind_s", "fetch.slow_ratio")


def made(done: Mapping[int, float], took: Mapping[int, float] | None = None, **more: Any) -> list[dict[str, float]]:
    """Batch n is ready at `done[n]` (seconds after the first step), made by worker n % 2 in so many milliseconds."""
    walls = took or {}
    return [
        {
            "start": at - walls.get(n, 50) / 1000,
            "wall": walls.get(n, 50),
            "worker": n % 2,
            "pid": 200 + n % 2,
            "number": n // 2,
            **more,
        }
        for n, at in done.items()
    ]


def fed(table: Table, steps: int = 40, loader: Mapping[str, Any] | None = None, *, every: int = 1000) -> Recording:
    """Steps of 100 ms that begin with 20 ms of waiting; an epoch begins with each `every`-th."""
    own = [
        {**s, "input_wait": 20, "forward": 20, "flags": FLAG_EPOCH_START if n % every == 0 else 0}
        for n, s in enumerate(plan(steps))
    ]
    return recording({0: own}, batches={0: table}, facts={100: {"loaders": [{**TRAIN, **(loader or {})}]}})


HAND_OVER = ("fetch.hand_over_s", "fetch.hand_over_error")


def values(analysis: Analysis) -> list[float]:
    return [analysis.value(name, 0) for name in NAMES]


def on_time(count: int = 40, early_s: float = 0.0) -> dict[int, float]:
    """Every batch is made 15 ms after its fetch began, or earlier."""
    return {n: n * STEP_S + 0.015 - early_s for n in range(count)}


def test_a_wait_splits_at_the_moment_the_batch_is_made() -> None:
    assert values(analyse(fed(batches(made(on_time()))))) == pytest.approx([0.005, 0.0, 1.0])


def test_of_the_wait_for_a_batch_its_collections_take_a_part() -> None:
    """Batches are late by 15 ms; every second one lost 10 ms to a collection, every fourth 40 ms."""
    rows = made(on_time())
    for n, row in enumerate(rows):
        row["gc"] = 40 if n % 4 == 0 else 10 if n % 2 == 0 else 0
    found = analyse(fed(batches(rows)))
    matched = range(3, 40)  # of 40 steps three are warm-up
    making = [0.015 if n % 4 == 0 else 0.010 if n % 2 == 0 else 0.0 for n in matched]
    handing_over = [0.005 if n % 2 == 0 else 0.0 for n in matched if n < 38]  # while the same worker collects again
    assert found.value("fetch.collecting_s", 0) == pytest.approx(fmean(making) + fmean(handing_over))
    assert found.value("fetch.gc_share", 0) == pytest.approx(
        sum(r["gc"] for r in rows[3:]) / len(rows[3:]) / 50, rel=0.1
    )


def test_collections_that_were_not_recorded_are_missing() -> None:
    found = analyse(fed(batches(made(on_time(), gc=-1e-6))))
    assert found.get("fetch.collecting_s", 0) is None and found.get("fetch.gc_share", 0) is None
    assert "not recorded" in found.missing["fetch.collecting_s"]


def test_a_batch_that_was_made_before_leaves_nothing_but_the_hand_over() -> None:
    assert values(analyse(fed(batches(made(on_time(early_s=0.04)))))) == pytest.approx([0.02, 0.0, 1.0])


def test_waiting_for_a_slow_batch_while_the_next_is_ready_is_waiting_behind_it() -> None:
    done = on_time(early_s=0.03)
    slow = [n for n in range(8, 40) if n % 4 == 0]
    for n in slow:
        done[n] = n * STEP_S + 0.018  # its fetch ends 2 ms later; the batch after it is ready since the fetch began
        done[n + 1] = n * STEP_S - 0.01
    rows = made(done, dict.fromkeys(slow, 150.0))
    hand_over, behind, ratio = values(analyse(fed(batches(rows))))
    matched = 37  # of 40 steps three are warm-up
    assert behind == pytest.approx(0.018 * len(slow) / matched)
    assert hand_over == pytest.approx(0.020 - behind)
    assert ratio == pytest.approx(3.0)


def lag(slow_ms: float, quick_ms: float, count: int = 40, delay_ms: float = 0.0) -> float:
    took = {n: (slow_ms if n % 2 else quick_ms) + (n // 2) % 3 for n in range(count)}
    rows = [{**row, "delay": delay_ms if row["worker"] else 0.0} for row in made(on_time(count), took)]
    return analyse(fed(batches(rows))).value("fetch.worker_lag", 0)


def test_a_worker_whose_batches_take_longer_than_those_of_the_others_lags() -> None:
    assert 1.9 < lag(60, 30) < 2.0, "at least: three standard errors are off"
    assert lag(30, 30) == 1.0
    assert lag(60, 30, delay_ms=30) == 1.0, "it waits for a core"


def test_a_worker_with_few_batches_is_not_compared() -> None:
    rows = made(on_time(40), {n: 60 if n == 1 else 30 for n in range(40)})
    few = [row for row in rows if row["worker"] == 0 or row["number"] < 7]
    assert analyse(fed(batches(few))).value("fetch.worker_lag", 0) == 1.0


def test_what_the_next_indices_take_is_no_handing_over() -> None:
    assert values(analyse(drawing(on_time())))[0] == pytest.approx(0.001)


def test_what_is_left_of_the_handing_over_is_known_no_better_than_the_whole() -> None:
    uneven = {n: at - 0.001 * (n % 3) for n, at in on_time().items()}
    whole_s, whole = (analyse(fed(batches(made(uneven)))).value(name, 0) for name in HAND_OVER)
    left_s, left = (analyse(drawing(uneven)).value(name, 0) for name in HAND_OVER)
    assert left_s < 0.5 * whole_s
    assert left * left_s == pytest.approx(whole * whole_s)


def drawing(done: Mapping[int, float]) -> Recording:
    """4 ms of each fetch go to the indices of a later batch."""
    recorded = fed(batches(made(done)))
    facts = {100: {**recorded.facts[100], "indices_timed": True}}
    steps = {0: recorded.steps[0].copy()}
    steps[0]["flags"] |= FLAG_CLOCKED
    drawn = spans([("index", n, n * STEP_S, n * STEP_S + 0.004) for n in range(40)])
    return replace(recorded, facts=facts, steps=steps, spans={0: drawn})


def test_workers_that_were_to_live_on_count_anew_where_their_loader_is_made_anew() -> None:
    done = on_time()
    rows = [row for e in range(4) for row in made({n: done[10 * e + n] for n in range(10)})]
    for e in range(4):
        for n, row in enumerate(rows[10 * e : 10 * e + 10]):
            row["pid"] = 200 + 2 * e + n % 2
            row["start"] = max(row["start"], e)
            row["wall"] = 1000 * (done[10 * e + n] - row["start"])
    loader = {"persistent_workers": True, "made": 4}
    assert values(analyse(fed(batches(rows), loader=loader, every=10)))[0] == pytest.approx(0.005)


def test_batches_are_numbered_anew_in_each_epoch_by_new_workers() -> None:
    done = on_time()
    rows = [row for e in range(4) for row in made({n: done[10 * e + n] for n in range(10)})]
    for e in range(4):
        for n, row in enumerate(rows[10 * e : 10 * e + 10]):
            row["pid"] = 200 + 2 * e + n % 2
            row["start"] = max(row["start"], e)  # none is begun before its epoch is
            row["wall"] = 1000 * (done[10 * e + n] - row["start"])
    assert values(analyse(fed(batches(rows), every=10)))[0] == pytest.approx(0.005)


def test_workers_that_live_on_go_on_counting() -> None:
    done = on_time(35)
    rows, count = [], [0, 0]
    for e in range(5):
        for n in range(7):  # worker 0 makes four of seven, worker 1 three
            at = done[7 * e + n]
            start = max(at - 0.05, 0.7 * e)
            rows.append({"start": start, "wall": 1000 * (at - start), "worker": n % 2, "pid": 200 + n % 2})
            rows[-1]["number"] = count[n % 2]
            count[n % 2] += 1
    table = batches(rows)
    analysis = analyse(fed(table, 35, {"persistent_workers": True}, every=7))
    assert values(analysis)[0] == pytest.approx(0.005)
    assert not analyse(fed(table, 35, every=7)).has("fetch.hand_over_s"), "as new workers their numbers make no sense"


def test_batches_lost_from_the_record_are_left_out_and_shift_nothing() -> None:
    rows = made(on_time())
    assert values(analyse(fed(batches(rows[:10] + rows[13:])))) == pytest.approx([0.005, 0.0, 1.0])


@pytest.mark.parametrize(
    ("rows", "loader", "why"),
    [
        pytest.param(
            made({n: n * STEP_S + 0.115 for n in range(40)}), {}, "did not arrive in the order", id="disorder"
        ),
        pytest.param(
            made(on_time(early_s=0.9), dict.fromkeys(range(40), 1.0)),
            {},
            "did not arrive in the order",
            id="begun too early",
        ),
        pytest.param(made(on_time(15)), {}, "could be separated", id="few"),
        pytest.param(made(on_time(), loader=1), {"id": 0}, "no batch was seen", id="another loader's"),
    ],
)
def test_an_unknown_delivery_is_missing_with_a_reason(
    rows: list[dict[str, float]], loader: dict[str, Any], why: str
) -> None:
    analysis = analyse(fed(batches(rows), loader=loader))
    assert not any(analysis.has(name) for name in NAMES)
    assert why in analysis.missing["fetch.behind_s"]


def test_fetches_in_steps_of_several_batches_are_not_separated() -> None:
    own = [{**s, "micro_batches": 4} for s in plan(40)]
    facts = {100: {"loaders": [TRAIN]}}
    own[0]["flags"] = FLAG_EPOCH_START
    analysis = analyse(recording({0: own}, batches={0: batches(made(on_time()))}, facts=facts))
    assert "several batches" in analysis.missing["fetch.behind_s"]
    assert analysis.value("step.batches", 0) == 4.0


GATHERED = 4  # batches a step


def asked(n: int) -> float:
    """When batch n is asked for, of steps that gather four and have a fetch of 5 ms in each quarter."""
    return n // GATHERED * STEP_S + n % GATHERED * STEP_S / GATHERED


def gathered(
    *,
    every: int = 1000,
    lives_on: bool = False,
    noted: int = 1,
    done: Mapping[int, float] | None = None,
    took: Mapping[int, float] | None = None,
) -> Recording:
    """Forty steps; fetches are noted in each `noted`-th. A batch is made 3 ms into its fetch, or at `done`; an epoch has `every`."""
    count, rows, fetches, opened = 40 * GATHERED, [], [], []
    number = [0, 0]
    own = [{**s, "input_wait": 20, "forward": 20, "micro_batches": GATHERED} for s in plan(40)]
    for n in range(count):
        epoch, place = divmod(n, every)
        if place == 0:
            own[n // GATHERED]["flags"] = FLAG_EPOCH_START
            number = number if lives_on else [0, 0]
            if n:  # the first one is made before the process is seen to train
                opened.append(("loader_start", n // GATHERED, asked(n) - 0.004, asked(n)))
        wall, worker = (took or {}).get(n, 4.0), place % 2
        at = (done or {}).get(n, asked(n) + 0.003)
        pid = 200 + worker + (0 if lives_on else 2 * epoch)
        rows.append({"start": at - wall / 1000, "wall": wall, "worker": worker, "pid": pid, "number": number[worker]})
        number[worker] += 1
        if n // GATHERED % noted == 0:
            fetches.append((("fetch", n // GATHERED, asked(n), asked(n) + 0.005), place))
    recorded = spans([*(span for span, _ in fetches), *opened], [*(place for _, place in fetches), *[0] * len(opened)])
    facts = {100: {"loaders": [{**TRAIN, "persistent_workers": lives_on}]}}
    return recording({0: own}, batches={0: batches(rows)}, facts=facts, spans={0: recorded})


@pytest.mark.parametrize("lives_on", [False, True], ids=["new workers", "workers that live on"])
@pytest.mark.parametrize("every", [1000, 40, 15, 14, 6, 3])
def test_fetches_that_were_noted_are_followed_though_a_step_gathers_several(every: int, lives_on: bool) -> None:
    """Epochs begin with a step, amid one, or twice in one."""
    assert values(analyse(gathered(every=every, lives_on=lives_on))) == pytest.approx([0.002, 0.0, 1.0])


def test_fetches_of_some_steps_stand_for_all() -> None:
    assert values(analyse(gathered(noted=5, every=15))) == pytest.approx([0.002, 0.0, 1.0])


def test_waiting_behind_a_slow_batch_is_reported_per_step() -> None:
    slow = list(range(9, 160, 8))
    done = {n: asked(n) + 0.004 for n in slow} | {n + 1: asked(n) - 0.001 for n in slow}
    hand_over, behind, ratio = values(analyse(gathered(done=done, took=dict.fromkeys(slow, 12.0))))
    steps = 37  # of forty three are warm-up
    assert behind == pytest.approx(0.004 * 18 / steps)
    assert ratio == pytest.approx(3.0)
    assert hand_over == pytest.approx((0.001 * 18 + 0.005 * 18 + 0.002 * (4 * steps - 36)) / (4 * steps))


@pytest.mark.parametrize(
    ("made_so", "why"),
    [
        pytest.param({"noted": 1000}, "could be separated", id="only in the warm-up"),
        pytest.param(
            {"done": {n: asked(n) + 0.02 for n in range(160)}}, "did not arrive in the order", id="made too late"
        ),
        pytest.param({"took": dict.fromkeys(range(160), 300.0)}, "did not arrive in the order", id="begun too early"),
    ],
)
def test_a_delivery_that_noted_fetches_do_not_show_is_missing_with_a_reason(made_so: dict[str, Any], why: str) -> None:
    analysis = analyse(gathered(**made_so))
    assert not any(analysis.has(name) for name in NAMES)
    assert why in analysis.missing["fetch.behind_s"]


def test_several_loaders_that_feed_a_step_have_no_delivery() -> None:
    recorded = gathered()
    steps, [loader] = all_steps(recorded)[0], analyse(recorded).loaders
    alone, beside = (
        delivery(steps, steps, recorded.batches[0], each, recorded.spans[0])
        for each in (loader, replace(loader, beside=1))
    )
    assert not isinstance(alone, str) and "several batches" in str(beside)


def test_sending_and_pinning_are_measured_where_they_were_timed() -> None:
    rows = [{**row, "sending": 1.0 if n % 2 else -1} for n, row in enumerate(made(on_time()))]
    pins = spans([("pin", n, n * STEP_S, n * STEP_S + 0.004) for n in range(40)], [5] * 40)
    analysis = analyse(replace(fed(batches(rows)), spans={0: pins}))
    assert analysis.value("fetch.sending_s", 0) == pytest.approx(0.001)
    assert analysis.value("fetch.pinning_s", 0) == pytest.approx(0.0008)


def test_parts_that_nobody_timed_are_left_out() -> None:
    other = spans([("pin", n, n * STEP_S, n * STEP_S + 0.004) for n in range(40)])
    other["site"] = 1  # an evaluation's
    analysis = analyse(replace(fed(batches(made(on_time()))), spans={0: other}))
    assert not analysis.has("fetch.sending_s") and not analysis.has("fetch.pinning_s")


def test_pinning_is_measured_for_loading_in_the_training_process_too() -> None:
    pins = spans([("pin", n, n * STEP_S, n * STEP_S + 0.004) for n in range(0, 40, 5)])
    facts = {100: {"loaders": [{**TRAIN, "num_workers": 0}]}}
    analysis = analyse(recording({0: plan(40)}, facts=facts, spans={0: pins}))
    assert analysis.value("fetch.pinning_s", 0) == pytest.approx(0.004)


def test_without_the_start_of_an_epoch_batches_cannot_be_counted() -> None:
    facts = {100: {"loaders": [TRAIN]}}
    analysis = analyse(recording({0: plan(40)}, batches={0: batches(made(on_time()))}, facts=facts))
    assert "no epoch began" in analysis.missing["fetch.behind_s"]


def test_without_workers_nothing_is_handed_over_and_nothing_is_missing() -> None:
    facts = {100: {"loaders": [{**TRAIN, "num_workers": 0}]}}
    analysis = analyse(recording({0: plan()}, facts=facts))
    assert not analysis.has("fetch.hand_over_s") and "fetch.hand_over_s" not in analysis.missing


def test_the_order_of_rows_does_not_matter() -> None:
    rows = made(on_time())
    shuffled = [rows[n] for n in np.random.default_rng(0).permutation(len(rows))]
    assert values(analyse(fed(batches(shuffled)))) == pytest.approx(values(analyse(fed(batches(rows)))))


def test_a_loop_that_looks_a_batch_ahead_takes_two_in_its_first_step() -> None:
    own = [{**s, "input_wait": 20, "forward": 20, "micro_batches": 1 + (n == 0)} for n, s in enumerate(plan(40))]
    own[0]["flags"] = FLAG_EPOCH_START
    done = {0: 0.0, **{n + 1: n * STEP_S + 0.015 for n in range(40)}}
    made_ahead = recording({0: own}, batches={0: batches(made(done))}, facts={100: {"loaders": [TRAIN]}})
    assert values(analyse(made_ahead)) == pytest.approx([0.005, 0.0, 1.0])
