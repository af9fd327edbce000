"""How batches are made, in workers or in the training process, and the capacity of each stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from recordings import batches, plan, recording, running, spans, steady_counter, step
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH

TRAIN = {"id": 0, "training": True, "file": "/job/train.py", "line": 42, "num_workers": 2, "batch_size": 8}
EVALUATE = {**TRAIN, "id": 1, "training": False, "line": 60}
FEED = {"wall": 80, "cpu": 60, "delay": 10, "wait": 20, "blocks": 200}  # milliseconds a batch; 100 kB read


IN_PROCESS = {"input_wait": 60}
CLOCKED = {"fetches": 1, "fetch": 50, "fetch_cpu": 30, "fetch_delay": 5, "fetch_blocks": 100}


def fed(made: Table, loaders: tuple[Mapping[str, Any], ...] = (TRAIN,), **more: Any) -> Recording:
    """One rank, 3 s of 100 ms steps, batches from two workers."""
    facts = {100: {"loaders": [dict(loader) for loader in loaders]}}
    return recording({0: plan()}, batches={0: made}, facts=facts, **more)


def evenly(count: int = 28, **given: float) -> list[dict[str, float]]:
    """Batches of two workers in turn, one each 100 ms."""
    return [{**FEED, "start": 0.1 * n, "worker": n % 2, "pid": 200 + n % 2, **given} for n in range(count)]


def making(analysis: Analysis, *names: str) -> list[float]:
    return [analysis.value(name, 0) for name in names]


def test_batches_of_workers_split_into_computing_waiting_for_a_core_and_blocked() -> None:
    analysis = analyse(fed(batches(evenly())))
    shares = making(analysis, "fetch.cpu_share", "fetch.delay_share", "fetch.blocked_share")
    assert shares == pytest.approx([0.75, 0.125, 0.125])
    assert making(analysis, "fetch.wall_s", "loader.workers") == pytest.approx([0.08, 2.0])
    assert analysis.value("loader.busy_share", 0) == pytest.approx(0.8)
    assert analysis.value("fetch.read_mb", 0) == pytest.approx(200 * 512 / 1e6)
    assert analysis.value("fetch.read_mb_per_s", 0) == pytest.approx(200 * 512 / 1e6 / 0.08)


@pytest.mark.parametrize(
    ("aside", "less_ms"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([("evaluation", 9, 0.98, 1.0)], 20, id="an evaluation in one wait"),
        pytest.param([("checkpoint", 9, 0.99, 1.5)], 10 + 5 * 20, id="a checkpoint in several"),
        pytest.param(
            [("evaluation", 9, 0.98, 1.0), ("checkpoint", 9, 0.985, 0.99)],
            20,
            id="a checkpoint within an evaluation counts once",
        ),
        pytest.param([("gc", 9, 0.98, 1.0), ("loader_start", 9, 1.98, 2.0)], 0, id="what is neither"),
        pytest.param([("evaluation", 9, 1.0, 1.08)], 0, id="while a batch was made"),
    ],
)
def test_a_worker_has_no_rest_while_the_loop_takes_no_batch(aside: list[Any], less_ms: float) -> None:
    analysis = analyse(fed(batches(evenly()), spans={0: spans(aside)} if aside else {}))
    count = 25  # made in the steady steps
    assert analysis.value("loader.busy_share", 0) == pytest.approx(count * 80 / (count * 100 - less_ms))


def test_a_workers_time_inside_the_kernel_is_a_share_of_its_making() -> None:
    assert making(analyse(fed(batches(evenly(system=20)))), "fetch.system_share") == pytest.approx([0.25])
    own = plan(30, **IN_PROCESS, **CLOCKED)
    assert not analyse(recording({0: own})).has("fetch.system_share")


def test_loading_in_the_training_process_is_read_from_the_steps() -> None:
    own = plan(30, **IN_PROCESS, **CLOCKED)
    analysis = analyse(recording({0: own}, facts={100: {"loaders": [{**TRAIN, "num_workers": 0}]}}))
    shares = making(analysis, "fetch.cpu_share", "fetch.delay_share", "fetch.blocked_share")
    assert shares == pytest.approx([0.6, 0.1, 0.3])
    assert making(analysis, "fetch.wall_s", "loader.workers") == pytest.approx([0.05, 0.0])
    assert not analysis.has("loader.busy_share")


def test_steps_whose_cpu_clocks_were_not_read_change_no_share() -> None:
    sampled = [step(**IN_PROCESS, **(CLOCKED if n % 4 == 0 else {})) for n in range(32)]
    several = [analyse(recording({0: own})) for own in (sampled, plan(32, **IN_PROCESS, **CLOCKED))]
    for name in ("fetch.wall_s", "fetch.cpu_share", "fetch.blocked_share", "fetch.read_mb"):
        assert several[0].value(name, 0) == pytest.approx(several[1].value(name, 0))


def test_fetches_that_were_never_timed_are_missing_and_not_zero() -> None:
    analysis = analyse(recording({0: plan(30, **IN_PROCESS)}))
    assert not analysis.has("fetch.wall_s") and not analysis.has("fetch.cpu_share")
    assert "fetch.wall_s" in analysis.missing


def test_micro_batches_are_batches() -> None:
    own = plan(30, input_wait=200, fetch=200, fetches=4, micro_batches=4, samples=32)
    assert analyse(recording({0: own})).value("fetch.wall_s", 0) == pytest.approx(0.05)


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"loader": 1}, id="the evaluation loader's"),
        pytest.param({"flags": FLAG_FIRST_BATCH}, id="a worker's first"),
        pytest.param({"start": -5.0}, id="made before the steady steps"),
        pytest.param({"start": 9.0}, id="made after them"),
    ],
)
def test_batches_that_say_nothing_of_training_are_left_out(odd: dict[str, float]) -> None:
    strange = [{**row, **odd, "wall": 900} for row in evenly(6)]
    analysis = analyse(fed(batches([*evenly(), *strange]), (TRAIN, EVALUATE)))
    assert analysis.value("fetch.wall_s", 0) == pytest.approx(0.08)


def test_a_sample_of_old_batches_gives_the_same_result() -> None:
    full, thinned = evenly(), evenly()[::4]  # retention keeps a share of them
    names = ("fetch.wall_s", "fetch.cpu_share", "loader.busy_share", "loader.workers", "fetch.read_mb_per_s")
    several = [analyse(fed(batches(rows))) for rows in (full, thinned)]
    assert making(several[1], *names) == pytest.approx(making(several[0], *names))
    assert several[1].throughput == several[0].throughput
    for before, after in zip(several[0].capacities, several[1].capacities, strict=True):
        assert after.samples_per_s == pytest.approx(before.samples_per_s)


def test_workers_are_counted_where_no_loader_is_known() -> None:
    assert analyse(fed(batches(evenly()), ())).value("loader.workers", 0) == 2.0


def test_a_batch_holds_what_the_loop_got() -> None:
    """A data set that makes whole batches is asked for one item at a time; the loop's batch counts."""
    known, asked_for_one = (analyse(fed(batches(evenly(samples=each)))) for each in (8, 1))
    assert asked_for_one.capacities == known.capacities
    assert [c.samples_per_s for c in known.capacities if c.stage == "storage"] == [pytest.approx(2 * 8 / 0.01)]


def test_batches_out_of_sight_are_missing_and_not_zero() -> None:
    analysis = analyse(recording({0: plan()}))
    assert not any(analysis.has(f"fetch.{name}") for name in ("wall_s", "cpu_share", "read_mb"))
    assert "no batch was seen" in analysis.missing["fetch.wall_s"]


def test_the_training_loader_is_the_known_one_else_the_only_one() -> None:
    unknown = {**TRAIN, "training": None}
    assert analyse(fed(batches(evenly()), (EVALUATE, TRAIN))).training_loader(0).line == 42  # type: ignore[union-attr]
    later = {**TRAIN, "id": 2, "line": 80, "num_workers": 5}  # a second stage of training made a new one
    second = analyse(fed(batches(evenly(loader=2)), (TRAIN, later)))
    assert second.training_loader(0).line == 80 and second.value("loader.workers", 0) == 5.0  # type: ignore[union-attr]
    assert analyse(fed(batches(evenly()), (unknown,))).training_loader(0) is not None
    assert analyse(fed(batches(evenly()), (unknown, {**unknown, "id": 1}))).training_loader(0) is None


def test_loader_facts_carry_the_mount_of_their_data() -> None:
    mount = {"mount_point": "/data", "fs_type": "nfs4", "network": True}
    facts = {100: {"loaders": [{**TRAIN, "dataset": {"root": "/data/images"}}], "mounts": {"/data/images": mount}}}
    analysis = analyse(recording({0: plan()}, facts=facts))
    assert analysis.loaders[0].mount == mount
    assert analysis.value("data.network_mount", 0) == 1.0


def test_facts_of_processes_that_are_no_rank_are_not_the_jobs_loaders() -> None:
    assert analyse(recording({0: plan()}, facts={555: {"loaders": [TRAIN]}})).loaders == ()


def test_throughput_counts_all_ranks() -> None:
    throughput = analyse(recording({0: plan(), 1: plan()})).throughput
    assert (throughput.batch_size, throughput.world_size) == (8.0, 2)
    assert throughput.samples_per_s == pytest.approx(160.0)
    assert throughput.steps_per_s == pytest.approx(10.0)


def test_unknown_batch_sizes_are_unknown_throughput() -> None:
    throughput = analyse(recording({0: plan(30, samples=0)})).throughput
    assert throughput.samples_per_s is None and throughput.steps_per_s == pytest.approx(10.0)


def test_the_advisors_own_cost_leaves_out_a_moment_that_comes_once() -> None:
    own = [{**step(), "self": 0.02} for _ in range(29)] + [{**step(), "self": 5}]
    agent = {"cpu_s": 0.3, "wall_s": 30.0, "startup_s": 0.2}
    overhead = analyse(recording({0: own}, meta={"agent": agent})).overhead
    assert overhead.us_per_step == pytest.approx(20.0)
    assert overhead.step_share == pytest.approx(0.0002)
    assert (overhead.agent_cpu_share, overhead.startup_s) == pytest.approx((0.01, 0.2))
    assert overhead.worker_share is None, "nobody saw a worker"
    silent = analyse(replace(recording({}), samples={("job.cpu_s", "job"): steady_counter(1.0)})).overhead
    assert (silent.us_per_step, silent.agent_cpu_share) == (None, None)


@pytest.mark.parametrize("plans", [{}, {0: plan()}], ids=["no steps", "steps"])
def test_the_advisors_cost_in_workers_is_a_share_of_the_time_that_they_lived(plans: dict[int, Any]) -> None:
    agent = {"cpu_s": 0.3, "wall_s": 30.0, "workers_wall_s": 100.0, "workers_self_s": 0.4}
    assert analyse(recording(plans, meta={"agent": agent})).overhead.worker_share == pytest.approx(0.004)


def test_marks_that_are_read_together_are_a_cost_of_all_their_steps() -> None:
    read = [{**step(), "self": 0.4 if number % 20 == 19 else 0} for number in range(400)]
    assert analyse(recording({0: read})).overhead.us_per_step == pytest.approx(20.0)


def test_ranks_show_where_they_are_and_how_they_ended() -> None:
    made = recording({0: plan(), 1: plan()})
    now = made.meta.last_ns
    alive = replace(running(made), positions={0: ("backward", 30, now - 2_000_000_000)})
    strips = analyse(alive).ranks
    assert (strips[0].phase, strips[0].phase_for_s, strips[0].step, strips[0].alive) == ("backward", 2.0, 30, True)
    assert strips[0].step_s == pytest.approx(0.1)
    ends: tuple[dict[str, Any], ...] = ({"exit_signal": 9}, {"exit_code": 3})
    ended = tuple(replace(p, ended_ns=now, **ends[n]) for n, p in enumerate(made.processes))
    assert [s.phase for s in analyse(replace(made, processes=ended)).ranks] == ["killed by SIGKILL", "exit 3"]


def test_a_kernel_without_run_queue_delay_makes_waiting_unknown_and_not_zero() -> None:
    own = plan(30, **IN_PROCESS, **CLOCKED)
    for kept in (True, False):
        analysis = analyse(recording({0: own}, facts={100: {"run_delay": kept}}))
        assert analysis.has("fetch.cpu_share")
        for name in ("step.run_delay_s", "fetch.delay_share", "fetch.blocked_share"):
            assert analysis.has(name) == kept
            assert (name in analysis.missing) != kept
