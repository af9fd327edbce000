"""Cells of a benchmark: the rate of their steps, and what becomes of children that fail."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from bench_samples import OPTIONS, setting
from rn50_advisor.advisor.bench import bench_launch
from rn50_advisor.advisor.bench.bench_launch import Bench, rate_of, run_logged
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.model.errors import AdvisorError


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


def bench(folder: Path, **given: Any) -> Bench:
    return Bench(folder, OPTIONS, "cpu", **given)


def test_an_interpreter_that_cannot_train_is_reported_with_its_reason(tmp_path: Path) -> None:
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n")
    script.chmod(0o700)
    with pytest.raises(AdvisorError, match="No module named torch"):
        bench(tmp_path, python=str(script)).probe()


def test_a_child_that_lasts_too_long_is_ended(tmp_path: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    assert "timeout after 0 s" in run_logged(sleeping, tmp_path / "log", {}, 0.2)


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
    assert "timeout after" in run_logged([sys.executable, "-c", program], tmp_path / "log", dict(os.environ), 900.0)
    _, alive = psutil.wait_procs(_processes((tmp_path / "pid").read_text()), timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def _processes(pid: str) -> list[psutil.Process]:
    try:
        return [psutil.Process(int(pid))]
    except psutil.NoSuchProcess:
        return []


def test_a_cell_tells_no_channel_and_no_collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RN50_ADVISOR_NOTIFY", "RN50_ADVISOR_OTLP"):
        monkeypatch.setenv(name, "http://host/SECRET")
    assert "SECRET" not in str(bench(tmp_path)._environment(setting("fp32", True, 4)))


def test_a_rank_of_a_larger_job_measures_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "2")
    environment = bench(tmp_path)._environment(setting("fp32", True, 4))
    assert "RANK" not in environment and "WORLD_SIZE" not in environment and environment["MALLOC_ARENA_MAX"] == "2"


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
    environment = Bench(Path("unused"), OPTIONS, device, cores=8.0)._environment(setting("fp32", True, 4, devices))
    assert environment.get("OMP_NUM_THREADS") == threads


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
def test_a_rank_that_the_kernel_killed_is_separated_from_those_that_torchrun_ended(
    tmp_path: Path, first: int, other: int, killed: bool
) -> None:
    (tmp_path / "log").write_text(TORCHRUN.format(first=first, other=other))
    assert bench_launch.rank_was_killed(tmp_path / "log") == killed
    assert not bench_launch.rank_was_killed(tmp_path / "none")


def test_the_error_of_a_childs_own_output_is_told_not_that_of_the_summary_after_it(tmp_path: Path) -> None:
    log = tmp_path / "cell.log"
    job = "rn50-advisor ──── as the job prints it, too\nRuntimeError: no kernel\nended\n"
    log.write_text(f"{job}rn50-advisor ────\nwhy     RuntimeError: no kernel; more\n")
    assert bench_launch._last_error(log) == "RuntimeError: no kernel"


def test_a_childs_ending_is_described(tmp_path: Path) -> None:
    assert run_logged([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log", {}, 60) == "exit code 3"
    killed = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    assert run_logged(killed, tmp_path / "log", {}, 60) == "exit code 137"
    assert run_logged([sys.executable, "-c", ""], tmp_path / "log", {}, 60) == ""


def test_workers_that_hand_over_together_are_judged_by_whole_rounds() -> None:
    """16 workers bring 16 batches of 256 in 41 s, which are trained in 1.4 s: most steps look fed, the loader is not."""
    rushes = [0.09] * 5 + [41 - 15 * 0.09, *[0.09] * 15] * 2 + [41 - 15 * 0.09] + [0.09] * 10
    assert rate_of(rushes, 256, together=16).value == pytest.approx(16 * 256 / 41)
    assert rate_of(rushes[:20], 256, together=16).value == pytest.approx(16 * 256 / 41), (
        "a round that is not whole is left"
    )
    assert rate_of([0.1] * 3, 32, together=16).value == pytest.approx(320.0), "not one round: as it is"
