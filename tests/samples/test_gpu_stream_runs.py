"""Runs of simulated jobs: the recorder's rows tell what the simulator did, thinned and paced as in a job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from samples.gpus.streams.description import Exchange, Gpu, Job, Loader, Pass, Pauses
from samples.gpus.streams.simulated_runs import play, record

from rn50_advisor.advisor.model.recording import Recording as Recorded
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.probes.rank.loader_marks import LoaderMarks

MS = 1e6
ONE = Job(seconds=6.0)
SHORT = Job(
    forward=Pass(300, 1.5, 6.0), backward=Pass(500, 2.5, 4.0), optimizer=Pass(10, 0.3, 10.0), loader=Loader(10.0), seconds=9.0
)  # fmt: skip


def recorded(job: Job, folder: Path) -> tuple[Recorded, float]:
    step_s = record(job, folder, name="job")
    return read_recording(folder), step_s


def test_the_events_of_a_step_are_the_time_of_its_kernels(tmp_path: Path) -> None:
    made, step_s = recorded(ONE, tmp_path)
    rows = made.gpu_steps[0][5:]
    for phase, part in (("forward", ONE.forward), ("backward", ONE.backward), ("optimizer", ONE.optimizer)):
        assert np.median(rows[f"{phase}_ns"]) == pytest.approx(part.gpu_ms * MS, rel=0.06), phase
    assert np.median(np.diff(made.steps[0]["t_start_ns"][10:])) / 1e9 == pytest.approx(step_s, rel=0.05)
    assert play(ONE) == step_s, "what is recorded costs nothing, and what is not recorded is the same job"


def test_short_steps_have_events_only_in_blocks_and_the_others_are_buffered(tmp_path: Path) -> None:
    made, _ = recorded(SHORT, tmp_path)
    steps, timed = made.steps[0], made.gpu_steps[0]["step"]
    assert 60 < timed.size < 0.5 * steps.size
    assert set(range(1, 59)) <= set(timed.tolist())
    assert np.unique(steps["step"]).size == steps.size
    assert int(steps["step"].max()) + 1 == int(steps["count"].sum()), (
        "no step is lost, also among those that are only counted"
    )


def test_the_recorders_cost_is_that_of_its_events_and_clocks(tmp_path: Path) -> None:
    made, _ = recorded(ONE, tmp_path)
    assert 20_000 < np.median(made.steps[0]["self_ns"][5:]) < 300_000


def test_ranks_end_each_exchange_together_and_ddp_stamps_it(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, gpu=Gpu(slower={1: 1.3}), exchange=Exchange(wire_ms=10.0))
    made, step_s = recorded(job, tmp_path)
    assert step_s > 1.25 * play(ONE)
    waits = [np.median(made.comm[rank]["comm_ns"] - made.comm[rank]["overlap_ns"])[()] / MS for rank in (0, 1)]
    assert waits[0] > 30 and 1 < waits[1] < 12, "rank 0 waits for rank 1, which waits for the wire"
    assert made.comm[0]["iteration"].size >= 9


def test_synchronised_norms_make_every_rank_as_slow_as_the_slowest_in_the_middle_of_its_passes(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, gpu=Gpu(slower={1: 1.3}), exchange=Exchange(norm_layers=20))
    made, _ = recorded(job, tmp_path)
    forward = [np.median(made.gpu_steps[rank]["forward_ns"][5:]) for rank in (0, 1)]
    assert forward[0] == pytest.approx(forward[1], rel=0.03)
    calls = made.collectives[0]
    assert np.median(calls["norm_calls"]) == 40 and np.median(calls["on_device"]) == 40


def test_observed_steps_name_the_line_that_reads_from_the_gpu(tmp_path: Path) -> None:
    made, _ = recorded(replace(ONE, reads_every=1), tmp_path)
    (facts,) = made.facts.values()
    (site,) = facts["syncs"]["sites"]
    assert (site["call"], site["file"], site["phase"]) == ("item", "/job/train.py", "gap")
    assert site["blocked_ns"] / site["count"] > 50 * MS


def test_updates_inside_the_backward_and_compiled_ones_still_make_steps(tmp_path: Path) -> None:
    for changes in ({"update_in_backward": True}, {"compiled_update": True}):
        made, _ = recorded(replace(ONE, **changes), tmp_path / next(iter(changes)))
        assert made.steps[0].size > 25


def test_evaluations_and_checkpoints_are_no_part_of_the_steps_passes(tmp_path: Path) -> None:
    made, _ = recorded(replace(ONE, pauses=Pauses(10, 5, 15, 200.0)), tmp_path)
    rows = made.steps[0]
    assert np.count_nonzero(rows["evaluation_ns"]) == rows.size // 10
    assert np.count_nonzero(rows["checkpoint_ns"]) == rows.size // 15
    assert rows["evaluation_ns"].max() >= 5 * 0.9 * ONE.forward.gpu_ms * MS
    assert rows["checkpoint_ns"].max() >= 200 * MS
    (facts,) = made.facts.values()
    (site,) = facts["save_sites"]
    assert site["file"] == "/job/train.py" and site["count"] == rows.size // 15


def test_only_the_first_rank_saves_and_the_others_wait_for_it(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, pauses=Pauses(saves_every=10, save_ms=300.0))
    made, step_s = recorded(job, tmp_path)
    assert made.steps[0]["checkpoint_ns"].any() and not made.steps[1]["checkpoint_ns"].any()
    assert step_s > play(replace(job, pauses=Pauses())) + 0.02


def test_batches_that_differ_from_rank_to_rank_take_as_long_as_the_longest() -> None:
    even, uneven = (play(replace(ONE, ranks=4, **{how: 0.4})) for how in ("varies", "uneven"))
    assert uneven > 1.1 * even


def test_gradients_exchanged_after_each_micro_batch_take_the_wire_as_often() -> None:
    job = replace(ONE, ranks=2, micro_batches=3, exchange=Exchange(wire_ms=150.0))
    assert play(replace(job, exchanges_each=True)) > 1.4 * play(job)


def test_a_loss_read_after_each_micro_batch_is_found_in_observed_steps(tmp_path: Path) -> None:
    made, _ = recorded(replace(ONE, micro_batches=2, reads_each_batch=True), tmp_path)
    (facts,) = made.facts.values()
    (site,) = facts["syncs"]["sites"]
    assert site["call"] == "item" and site["count"] == pytest.approx(2 * site["looks"], rel=0.1)


def test_a_gpu_at_its_own_limit_is_capped_but_nobody_lowered_the_limit(tmp_path: Path) -> None:
    job = replace(ONE, gpu=Gpu(clock={0: 0.85}, held_by="own limit"))
    made, _ = recorded(job, tmp_path)
    limit, watts = (made.samples[f"gpu.power_{name}", "gpu:0"].value for name in ("limit_w", "w"))
    assert set(limit) == {float(job.gpu.kind.power_w)} and np.median(watts) > 0.9 * job.gpu.kind.power_w
    assert made.samples["gpu.power_cap_s", "gpu:0"].value[-1] > 5


@pytest.mark.parametrize(("slot_ms", "low", "high"), [(1.0, 90, 100), (0.001, 20, 75)])
def test_utilisation_is_as_coarse_as_the_drivers(tmp_path: Path, slot_ms: float, low: float, high: float) -> None:
    job = replace(
        SHORT, forward=Pass(300, 1.5, 12.0), backward=Pass(500, 2.5, 9.0), gpu=Gpu(utilisation_slot_ms=slot_ms)
    )
    made, _ = recorded(job, tmp_path)
    use = made.samples["gpu.util_pct", "gpu:0"].value
    assert low <= np.median(use[4:]) <= high


def test_an_error_that_the_recorder_swallows_fails_the_simulation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoaderMarks, "watch_fetch", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        record(ONE, tmp_path, name="job")


def test_stages_of_a_pipeline_wait_for_each_other_and_fill_with_micro_batches() -> None:
    stage = replace(
        ONE,
        ranks=4,
        exchange=Exchange("pipeline", hop_ms=0.1),
        forward=Pass(40, 5.0, 8.0),
        backward=Pass(80, 10.0, 5.0),
        optimizer=Pass(5, 0.1, 10.0),
        batch_mb=1.0,
    )
    few, many = (play(replace(stage, micro_batches=count)) / count for count in (2, 8))
    assert many == pytest.approx(15e-3 * (8 + 3) / 8, rel=0.1), "each rank idles for three micro-batches of eleven"
    assert few > 1.5 * many


def test_two_streams_run_side_by_side_and_a_pass_ends_with_both() -> None:
    job = replace(ONE, forward=Pass(420, 60.0, 8.0), backward=Pass(800, 120.0, 5.0))
    assert play(replace(job, streams=2)) == pytest.approx(0.5 * play(job), rel=0.1)


def test_tokens_go_to_the_ranks_of_their_experts_and_back_in_both_passes(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, exchange=Exchange(expert_layers=10, expert_us=500.0))
    made, step_s = recorded(job, tmp_path)
    assert step_s == pytest.approx(play(replace(ONE, ranks=2)) + 40 * 0.5e-3, rel=0.1)
    assert np.median(made.collectives[0]["calls"]) == 40
    (site,) = made.facts[5000]["collectives"]
    assert (site["library"], site["kind"]) == ("megatron", "all_to_all")


def test_each_rank_sends_the_parameters_that_it_updated(tmp_path: Path) -> None:
    job = replace(ONE, ranks=4, exchange=Exchange(parameters_ms=40.0))
    made, step_s = recorded(job, tmp_path)
    assert step_s > play(replace(ONE, ranks=4)) + 0.035
    (site,) = made.facts[5000]["collectives"]
    assert (site["library"], site["kind"]) == ("ZeRO", "broadcast")
    assert np.median(made.collectives[0]["calls"]) == 4


def test_a_lower_memory_clock_slows_the_rank_and_the_driver_shows_it(tmp_path: Path) -> None:
    made, step_s = recorded(replace(ONE, gpu=Gpu(memory_clock={0: 0.5})), tmp_path)
    assert step_s > 1.8 * play(ONE)
    assert set(made.samples["gpu.mem_clock_mhz", "gpu:0"].value) == {round(0.5 * ONE.gpu.kind.mem_mhz)}


def test_a_forward_pass_that_is_captured_costs_one_launch() -> None:
    job = replace(ONE, forward=Pass(2000, 10.0, 20.0), backward=Pass(200, 5.0, 5.0), loader=Loader(batch_ms=50.0))
    assert play(replace(job, graph="forward")) < play(job) - 0.015


def test_ranks_wait_for_the_one_that_evaluates_alone(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, pauses=Pauses(10, 5, alone=True))
    made, step_s = recorded(job, tmp_path)
    assert made.steps[0]["evaluation_ns"].any() and not made.steps[1]["evaluation_ns"].any()
    assert step_s == pytest.approx(play(replace(job, pauses=Pauses(10, 5))), rel=0.02)


def test_all_micro_batches_of_a_stage_are_in_its_passes(tmp_path: Path) -> None:
    job = replace(ONE, ranks=2, micro_batches=4, exchange=Exchange("pipeline", hop_ms=0.1), batch_mb=1.0)
    made, _ = recorded(job, tmp_path)
    rows = made.gpu_steps[0][5:]
    assert np.median(rows["forward_ns"]) == pytest.approx(4 * job.forward.gpu_ms * MS, rel=0.1)
    assert np.median(rows["gap_ns"]) < 0.5 * job.forward.gpu_ms * MS
