"""An interrupted or killed run of the seeded faults leaves nothing behind: no process, group, mount, device or folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from samples.faults.fixtures import CGROUP, NAME
from samples.faults.leftovers import OWNER, sweep

from waiting import wait_for

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("faults")]  # none sweeps away what another looks at

ROOT = Path(__file__).resolve().parents[3]


def start(folder: Path, scenario: str) -> subprocess.Popen[bytes]:
    """A run of one scenario, as soon as its job runs under its fixtures."""
    command = [sys.executable, "-m", "samples.faults", "--folder", str(folder), "--only", scenario]
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    wait_for(
        lambda: run.poll() is not None or any(folder.glob("*/*/job/runs/*/run.sqlite")), "the first recording", 180
    )
    if run.poll() is not None:
        assert run.stdout is not None
        said = run.stdout.read().decode()
        assert "not run" in said, said
        pytest.skip(f"NOT TESTED here: {said}")
    return run


def left_by(pid: int, folder: Path) -> dict[str, list[str]]:
    def started(process: psutil.Process) -> bool:
        try:
            return process.environ().get(OWNER) == str(pid) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    found = {
        "processes": [process.name() for process in psutil.process_iter() if started(process)],
        "groups": [str(path) for path in [*CGROUP.glob(f"{NAME}{pid}-*"), *CGROUP.glob(f"*/{NAME}{pid}-*")]],
        "mounts": [line for line in Path("/proc/mounts").read_text().splitlines() if str(folder) in line],
        "devices": [str(p) for p in Path("/sys/block").glob("loop*/loop/backing_file") if str(folder) in p.read_text()],
        "folders": [str(path) for path in folder.glob(f"{NAME}*")],
    }
    return {what: names for what, names in found.items() if names}


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminated"])
def test_an_interrupted_run_undoes_everything_and_says_so(tmp_path: Path, signum: signal.Signals) -> None:
    run = start(tmp_path, "quota-on-one-rank")
    try:
        assert "groups" in left_by(run.pid, tmp_path)
        run.send_signal(signum)
        said, _ = run.communicate(timeout=90)
    finally:
        run.kill()
    assert run.returncode == 128 + signum
    assert f"Stopped by {signum.name}" in said.decode()
    assert not left_by(run.pid, tmp_path)


@pytest.mark.parametrize("scenario", ["throttled-disk", "neighbours-on-the-disk"])
def test_what_a_killed_run_has_left_is_swept_by_the_next(tmp_path: Path, scenario: str) -> None:
    run = start(tmp_path, scenario)
    os.kill(run.pid, signal.SIGKILL)
    run.communicate()
    assert {"groups", "mounts", "devices", "folders"} <= left_by(run.pid, tmp_path).keys()
    sweep(tmp_path)
    assert not left_by(run.pid, tmp_path)


def test_a_run_that_lives_is_never_swept(tmp_path: Path) -> None:
    run = start(tmp_path, "quota-on-one-rank")
    try:
        sweep(tmp_path)
        assert {"groups", "folders", "processes"} <= left_by(run.pid, tmp_path).keys()
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=90)
