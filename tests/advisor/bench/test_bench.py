"""Bench without a training: which settings are asked for, what follows from their rates, and what becomes of children that fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_samples import A100, OPTIONS, PLAN, cell, machine, machine_that, measured, saturating, setting
from rn50_advisor.advisor.bench import bench_launch
from rn50_advisor.advisor.bench.bench_launch import Bench, rate_of, run_logged
from rn50_advisor.advisor.bench.bench_machine import (
    possible_precisions,
    precisions_of,
    seen,
    usual_batch,
    usual_batches,
    usual_devices,
)
from rn50_advisor.advisor.bench.bench_plan import carry_out, knee
from rn50_advisor.advisor.bench.conclude import against, conclude, judge, scaling, slower_than, sweeps
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Cell, Setting, parse_benchmark
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, UsageError


def test_dimensions_are_measured_one_at_a_time_around_the_fastest() -> None:
    cells = [one.setting for one in carry_out(PLAN, machine_that(saturating))]
    assert cells[:4] == [setting(p, layout, 32) for p in ("fp32", "bf16") for layout in (True, False)]
    swept = [one.batch for one in cells if one == setting("bf16", True, one.batch)]
    assert sorted(swept) == [16, 32, 64, 128, 256]
    # a batch of 128 is within 5 % of 256: there devices are compared, of each precision and with one device beside them
    for precision in ("fp32", "bf16"):
        assert {one.devices for one in cells if one == setting(precision, True, 128, one.devices)} == {1, 2, 4}
    assert len(cells) == len(set(cells)), "nothing is measured twice"


def test_a_sweep_ends_where_memory_does() -> None:
    cells = carry_out(PLAN, machine_that(saturating, fits=64))
    assert [one.setting.batch for one in cells if one.state == "oom"] == [128]
    [sweep] = [s for s in sweeps(cells) if s.devices == 1 and s.precision == "bf16" and s.channels_last]
    assert (sweep.batches, sweep.knee, sweep.oom_at) == ((16, 32, 64), 64, 128)


def test_precisions_are_compared_at_a_batch_that_fits_all_of_them() -> None:
    def measure(wanted: Setting) -> Cell:
        large = wanted.precision == "fp32" and wanted.batch > 8
        return cell(wanted, state="oom") if large else measured(wanted, 100.0)

    cells = carry_out(replace(PLAN, batches=(), devices=(1,)), measure)
    assert {one.setting.precision for one in cells if one.setting.batch == 8 and one.images_per_s} == {"fp32", "bf16"}


def test_nothing_fits_and_nothing_works() -> None:
    assert all(one.state == "oom" for one in carry_out(PLAN, machine_that(saturating, fits=0)))
    failed = carry_out(PLAN, lambda wanted: cell(wanted, state="failed", why="no such model"))
    assert len(failed) == 4, "where no setting of the matrix works, no other is tried"


def test_a_sweep_ends_after_two_that_fail() -> None:
    def measure(wanted: Setting) -> Cell:
        fails = wanted.batch == 16 or wanted.batch >= 128
        return cell(wanted, state="failed") if fails else measured(wanted, 100.0)

    plan = replace(PLAN, devices=(1,), precisions=("fp32",), layouts=(True,), every_combination=True)
    assert [one.setting.batch for one in carry_out(plan, measure)] == [16, 32, 64, 128]


def test_every_combination_is_the_whole_table() -> None:
    plan = replace(PLAN, batches=(128, 256, 512), devices=(1, 2), precisions=("fp32",), every_combination=True)
    cells = [one.setting for one in carry_out(plan, machine_that(saturating))]
    assert set(cells) == {setting("fp32", lay, b, d) for lay in (True, False) for b in (128, 256, 512) for d in (1, 2)}


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([(8, 100.0), (16, 150.0), (32, 160.0), (64, 161.0)], 32),
        ([(8, 100.0), (16, 95.0)], 8),  # past it from the start
        ([(8, 95.0), (16, 100.0)], 8),  # exactly 5 % are no gain
        ([(8, 94.9), (16, 100.0)], 16),
        ([(64, 161.0), (8, 100.0)], 64),  # in any order
        ([], None),
    ],
)
def test_the_knee_is_the_smallest_batch_near_the_best(points: list[tuple[int, float]], expected: int | None) -> None:
    assert knee(points) == expected


def test_a_rate_is_the_median_over_stretches_of_steps() -> None:
    steady = rate_of([0.1] * 100, 32)
    assert steady == Estimate(pytest.approx(320.0), pytest.approx(320.0), pytest.approx(320.0))  # type: ignore[arg-type]
    with_a_pause = rate_of([0.1] * 95 + [5.0] * 5, 32)
    assert with_a_pause.value == pytest.approx(320.0), "one stretch that stood still does not move the median"
    assert with_a_pause.lo == pytest.approx(320.0)
    uneven = rate_of([0.1, 0.1, 0.2], 32)
    assert (uneven.lo, uneven.value, uneven.hi) == pytest.approx((160.0, 320.0, 320.0)), "few steps: all they span"
    with pytest.raises(ValueError, match="no steps"):
        rate_of([], 32)


def test_a_loop_without_noise_gives_its_own_rate() -> None:
    """The plumbing loses nothing: 40 steps of growing length, images over time of the middle stretches."""
    steps = [0.1 + 0.001 * n for n in range(40)]
    assert rate_of(steps, 64).value == pytest.approx(64 / (sum(steps) / 40), rel=0.01)


def test_efficiency_is_a_devices_rate_over_that_of_one_alone() -> None:
    cells = [measured(setting("bf16", True, 32, devices), rate) for devices, rate in ((1, 100.0), (4, 320.0))]
    [line] = scaling(cells)
    assert line.devices == (1, 4)
    assert [e.value for e in line.efficiency] == pytest.approx([1.0, 0.8])
    assert line.efficiency[0] == Estimate(1.0, 1.0, 1.0) and line.efficiency[1].lo < 0.8 < line.efficiency[1].hi
    assert scaling(cells[1:]) == (), "without one device alone there is nothing to compare with"
    missing = [measured(setting("bf16", True, 32, devices), 100.0 * devices) for devices in (2, 4)]
    said = [conclude(A100, OPTIONS, some, made_unix_s=0.0).sentences for some in (missing, cells)]
    assert [any("no scaling efficiency" in sentence for sentence in one) for one in said] == [True, False]


def test_ranks_on_one_cpu_are_not_held_against_cores_of_their_own() -> None:
    cells = [measured(setting("fp32", True, 32, ranks), rate) for ranks, rate in ((1, 100.0), (2, 95.0))]
    said = conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0).sentences
    assert any("2 ranks make 95 % of what one makes" in s for s in said) and not any("single ones" in s for s in said)


def test_what_others_measured_stands_beside_a_cell_of_a_known_gpu_only() -> None:
    cells = [measured(setting("bf16", True, 256), 1200.0), measured(setting("bf16", True, 256, 8), 9000.0)]
    made = conclude(A100, OPTIONS, cells, made_unix_s=0.0)
    assert [(r.tier, r.lo, r.hi) for r in made.cells[0].reference] == [
        ("typical", 1450.0, 2470.0),
        ("tuned", 3410.0, 3410.0),
        ("course", 500.0, 550.0),
    ]
    assert any("17 % below what is typical" in said for said in made.sentences)
    for other in (replace(OPTIONS, image_size=32), replace(OPTIONS, model="vgg19")):
        assert not conclude(A100, other, cells, made_unix_s=0.0).cells[0].reference
    mixed = replace(A100, names=("NVIDIA A100-SXM4-40GB", "NVIDIA A10G"))
    assert not conclude(mixed, OPTIONS, cells, made_unix_s=0.0).cells[0].reference
    assert not conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0).cells[0].reference


def benchmark(*rates: float, **other: Any) -> Benchmark:
    cells = [measured(setting("fp32", True, 8 << n), rate) for n, rate in enumerate(rates)]
    return replace(conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0), **other)


def test_an_earlier_result_is_compared_setting_by_setting() -> None:
    made = against(benchmark(100.0, 60.0, 103.0), benchmark(100.0, 100.0, 100.0), "last.json")
    assert made.against is not None
    assert [change.change for change in made.against.cells] == ["same", "regressed", "same"]
    assert [change.now for change in slower_than(made, 0.05)] == [1]
    assert slower_than(made, 0.5) == ()
    moved = [measured(setting("bf16", True, 8), 100.0)]
    other = against(benchmark(100.0), conclude(machine("cpu"), OPTIONS, moved, made_unix_s=0.0), "last.json")
    assert other.against is not None and not other.against.cells


def test_another_model_is_not_compared_and_another_machine_is_named() -> None:
    then = benchmark(100.0, options=replace(OPTIONS, model="vgg19"))
    made = against(benchmark(50.0), then, "last.json")
    assert made.against is not None and not made.against.cells
    there = benchmark(100.0, machine=machine("cpu", host="cloud"))
    made = against(benchmark(50.0), there, "cloud.json")
    assert made.against is not None and made.against.cells[0].change == "regressed"
    assert "host: cloud then, node now" in made.against.notes


@pytest.mark.parametrize(
    ("speed", "change"),
    [
        (Estimate(1.2, 1.01, 1.4), "improved"),
        (Estimate(1.2, 0.99, 1.4), "same"),
        (Estimate(0.8, 0.7, 0.99), "regressed"),
        (Estimate(0.995, 0.99, 0.999), "same"),
    ],
)
def test_a_change_is_called_one_only_where_its_interval_says_so(speed: Estimate, change: str) -> None:
    assert judge(speed) == change


def test_a_result_survives_its_file() -> None:
    cells = [measured(setting("bf16", True, 256), 1200.0, rule="DAT001"), cell(setting("bf16", True, 512), state="oom")]
    cells += [measured(setting("bf16", True, 256, 8), 9000.0)]
    made = conclude(A100, OPTIONS, cells, made_unix_s=5.0)
    assert parse_benchmark(json.dumps(made.as_json())) == made


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "rn50-advisor/bench/2"}', '{"schema": "rn50-advisor/bench/1"}']
)
def test_any_other_file_is_no_result(text: str) -> None:
    with pytest.raises(NotARun):
        parse_benchmark(text)


def told(**given: Any) -> dict[str, Any]:
    versions = {"torch": "2.9", "torchvision": "0.24", "cuda": "12.8", "models": ["resnet50"], "bf16_units": False}
    return {"names": [], "capability": None, "memory_bytes": [], **versions, **given}


@pytest.mark.parametrize(
    ("capability", "precisions"),
    [
        ((6, 1), ("fp32",)),
        ((7, 0), ("fp32", "fp16")),
        ((8, 0), ("fp32", "tf32", "bf16", "fp16")),
        ((9, 0), ("fp32", "tf32", "bf16", "fp16")),
    ],
)
def test_a_device_is_asked_for_what_it_has_units_for(capability: tuple[int, int], precisions: tuple[str, ...]) -> None:
    found = seen(told(names=["GPU"], capability=list(capability), memory_bytes=[1]), "auto")
    assert found.device == "cuda" and precisions_of(found) == precisions


def test_without_a_gpu_the_cpu_trains_and_only_where_it_may() -> None:
    found = seen(told(), "auto")
    assert found.device == "cpu" and precisions_of(found) == ("fp32",)
    assert possible_precisions(found) == ("fp32", "bf16"), "slow, but somebody may want to know how slow"
    assert precisions_of(seen(told(bf16_units=True), "auto")) == ("fp32", "bf16")
    assert seen(told(names=["GPU"], capability=[9, 0], memory_bytes=[1]), "cpu").names == ()
    with pytest.raises(UsageError, match="no CUDA device"):
        seen(told(), "cuda")


def test_usual_settings() -> None:
    assert usual_batch("cuda", 224) == 256 and usual_batch("cpu", 224) == 8
    assert usual_batch("cuda", 32) == 8192 and usual_batch("cpu", 32) == 128
    assert usual_batches("cuda", 256, quick=True) == (128, 256, 512)
    assert usual_batches("cpu", 1, quick=True) == (1, 2)
    assert usual_devices(8, quick=False) == (1, 2, 4, 8) and usual_devices(6, quick=False) == (1, 2, 4, 6)
    assert usual_devices(8, quick=True) == (1, 8) and usual_devices(1, quick=True) == (1,)


def bench(folder: Path, **given: Any) -> Bench:
    return Bench(folder, OPTIONS, "cpu", **given)


def test_an_interpreter_that_cannot_train_is_told_with_its_reason(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
    script.chmod(0o700)
    with pytest.raises(AdvisorError, match="No module named torch"):
        bench(tmp_path, python=str(script)).probe()


def test_a_child_that_lasts_too_long_is_ended(tmp_path: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert "longer than 0 s" in run_logged(sleeping, tmp_path / "log", {}, 0.2)


def test_a_child_that_heeds_nothing_is_killed_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An advisor that is killed leaves its job training, as it promises."""
    monkeypatch.setattr(bench_launch, "_ENDING_S", 0.2)
    deaf = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    )
    program = (
        f"import subprocess, sys\njob = subprocess.Popen([sys.executable, '-c', {deaf!r}], start_new_session=True)\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(job.pid))\n{deaf}"
    )
    real_wait = subprocess.Popen.wait

    def wait(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        while timeout == 900.0 and (tmp_path / "log").read_bytes().count(b"deaf") < 2:
            time.sleep(0.01)
        return real_wait(process, 0.01 if timeout == 900.0 else timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait)
    assert "longer than" in run_logged([sys.executable, "-c", program], tmp_path / "log", dict(os.environ), 900.0)
    _, alive = psutil.wait_procs(_processes((tmp_path / "pid").read_text()), timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def _processes(pid: str) -> list[psutil.Process]:
    try:
        return [psutil.Process(int(pid))]
    except psutil.NoSuchProcess:
        return []


def test_a_rank_of_a_larger_job_measures_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    told = bench(tmp_path)._environment(setting("fp32", True, 4))
    assert "RANK" not in told and "WORLD_SIZE" not in told and told["MALLOC_ARENA_MAX"] == "2"


@pytest.mark.parametrize(
    ("device", "devices", "set_before", "threads"),
    [
        # torch takes a thread for each physical core, and so does a loop that one writes by hand
        ("cpu", 1, None, None),
        ("cpu", 2, None, "4"),
        ("cpu", 16, None, "1"),
        ("cpu", 2, "3", "3"),
        ("cuda", 2, None, None),
    ],
)
def test_threads_are_shared_out_among_ranks_and_one_alone_is_left_alone(
    device: str, devices: int, set_before: str | None, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if set_before is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", set_before)
    told = Bench(Path("unused"), OPTIONS, device, cores=8.0)._environment(setting("fp32", True, 4, devices))
    assert told.get("OMP_NUM_THREADS") == threads


def test_a_sweep_on_a_gpu_goes_on_until_memory_ends() -> None:
    """Small pictures fit by the hundred thousand into a large one."""
    batches = usual_batches("cuda", 256, quick=False)
    plan = replace(PLAN, devices=(1,), precisions=("fp32",), layouts=(True,), batch=256, batches=batches)
    cells = carry_out(plan, machine_that(saturating, fits=200_000))
    assert [one.setting.batch for one in cells if one.state == "oom"] == [262_144]
    assert usual_batches("cpu", 8, quick=False) == (2, 4, 8, 16, 32)


TORCHRUN = """
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : {other} (pid: 12)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : {first} (pid: 11)
  traceback : whatever it was
"""


@pytest.mark.parametrize(
    ("first", "other", "killed"), [(-9, -15, True), (1, -9, False), (-11, -9, False), (1, 1, False)]
)
def test_a_rank_that_the_kernel_killed_is_told_from_those_that_torchrun_ended(
    tmp_path: Path, first: int, other: int, killed: bool
) -> None:
    (tmp_path / "log").write_text(TORCHRUN.format(first=first, other=other))
    assert bench_launch.rank_was_killed(tmp_path / "log") == killed
    assert not bench_launch.rank_was_killed(tmp_path / "none")


def test_a_childs_ending_is_told(tmp_path: Path) -> None:
    assert run_logged([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", {}, 60) == "exit code 3"
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert run_logged(killed, tmp_path / "log", {}, 60) == "exit code 137"
    assert run_logged([sys.executable, "-c", ""], tmp_path / "log", {}, 60) == ""
