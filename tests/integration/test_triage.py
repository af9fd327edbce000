"""A triage for real: under a quota, with little shared memory, on a throttled disk, as a command; and the program for GPUs without any."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_process import environment

from advisor.core.triage import parse_triage
from samples.faults.fixtures import CpuQuota, SlowDisk, SmallSharedMemory
from samples.faults.scenario import CannotBeMade

ROOT = Path(__file__).resolve().parents[2]


def found(code: str, folder: Path, *, under: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Checks by name that a fresh process, started by the command `under`, makes of `items`."""
    program = (
        "import json, sys\nfrom pathlib import Path\nfrom advisor.triage.load import Watch, Stretch\n"
        "from advisor.triage.found import Found, Setting\nfrom advisor.triage import disk, memory, processor, reading\n"
        "watch = Watch()\nnow = watch.now()\nidle = Stretch(now, now)\nscratch = Path(sys.argv[1])\n"
        f"items = {code}\n"
        "print(json.dumps({i.check.name: {'value': i.check.value, 'state': i.check.state, 'remedy': i.remedy, 'why': i.why}"
        " for i in items if isinstance(i, Found)}))"
    )
    command = [*under, sys.executable, "-c", program, str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return told


def test_a_quota_is_seen_in_whatever_version_of_control_groups(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a quota of one core is none on one core")
    try:
        with CpuQuota(0.8).hold(tmp_path) as conditions:
            check = found("processor.facts(watch)", tmp_path, under=conditions.container)["cpu.cores_allowed"]
    except CannotBeMade as reason:
        pytest.skip(f"THE QUOTA IS NOT TESTED HERE: {reason}")
    assert (check["value"], check["state"], check["remedy"]) == (0.8, "bad", "fix")


def test_shared_memory_of_a_container_is_seen(tmp_path: Path) -> None:
    try:
        with SmallSharedMemory(64).hold(tmp_path) as conditions:
            check = found("memory.shared_memory()", tmp_path, under=conditions.container)["memory.shm_bytes"]
    except CannotBeMade as reason:
        pytest.skip(f"SMALL SHARED MEMORY IS NOT TESTED HERE: {reason}")
    except AssertionError as error:
        if "unshare" in str(error) or "mount" in str(error):
            pytest.skip(f"SMALL SHARED MEMORY IS NOT TESTED HERE: {error}")
        raise
    assert (check["value"], check["state"], check["remedy"]) == (64 << 20, "bad", "fix")


@pytest.mark.parametrize("behind", [False, True])
def test_a_throttled_disk_is_seen_by_its_limit_and_by_its_rate(tmp_path: Path, behind: bool) -> None:
    """`behind`: what is limited lies below the disk that the data is on, as the limit of a provider does."""
    try:
        with SlowDisk(4_000_000, 100, behind=behind).hold(tmp_path) as conditions:
            data = conditions.values["disk"]
            place, amounts = f"disk.place_of(Path({data!r}))", "disk.Amounts(4 << 20, 100, 1.5, 8 << 20)"
            trial = f"disk.Trial({place}, {amounts}, watch, idle)"
            code = f"[*disk._limit({place}), *disk._reads(reading.list_files(Path({data!r})), {trial})]"
            told = found(code, tmp_path, under=conditions.prefix)
    except CannotBeMade as reason:
        pytest.skip(f"A THROTTLED DISK IS NOT TESTED HERE: {reason}")
    small, limit = told["disk.small_reads_per_s"], told.get("disk.limit_mb_per_s")
    assert small["state"] == "bad" and small["remedy"] == "fix" and ("control group" in small["why"]) == (not behind)
    assert behind or (limit is not None and (limit["value"], limit["state"]) == (4.0, "bad"))


# Everything is made short: which verdict it comes to is this machine's affair.
SHORT = """
import sys
from advisor.triage import decode, disk, memory, runner
runner.IDLE_S, decode.QUICK_S, memory._SECONDS = 0.2, 0.2, 0.1
disk.QUICK = disk.Amounts(4 << 20, 8, 1.0, 8 << 20)
from advisor.cli import main
main(sys.argv[1:])
"""


@pytest.mark.torch
def test_the_command_measures_a_machine_and_leaves_nothing(tmp_path: Path, images: Path) -> None:
    scratch, output = tmp_path / "scratch", tmp_path / "runs" / "triage.json"
    scratch.mkdir()
    command = [sys.executable, "-c", SHORT, "triage", "--python", sys.executable, "--scratch", str(scratch)]
    command += ["--data", os.path.relpath(images / "train", ROOT), "-o", str(output)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, timeout=300, check=False)
    triage = parse_triage(output.read_text())
    assert done.returncode == {"keep": 0, "fix": 3, "hand-back": 4}[triage.verdict.state], done.stderr
    assert list(scratch.iterdir()) == []
    for name in ("decode.images_per_core_s", "decode.data_images_per_core_s", "memory.copy_gb_per_s"):
        check = triage.get(name)
        assert check is not None and isinstance(check.value, float) and check.value > 0, triage.gaps
    assert b"decoding pictures" in done.stderr


@pytest.mark.torch
def test_the_program_for_gpus_runs_to_its_end_where_there_is_none(tmp_path: Path) -> None:
    asked = {
        "device": "cpu",
        "seconds": 0.01,
        "sustained_s": 0.1,
        "matrix": 64,
        "buffer_bytes": 1 << 20,
        "scratch": str(tmp_path),
        "reduced_bytes": [],
    }
    program = ROOT / "advisor" / "triage" / "children" / "on_gpus.py"
    done = subprocess.run(
        [sys.executable, str(program), json.dumps(asked)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    told = {row["name"]: row["value"] for row in map(json.loads, done.stdout.splitlines())}
    assert {"hbm_gb_per_s", "h2d_pinned_gb_per_s", "d2h_pageable_gb_per_s", "matmul_bf16_tflop_per_s"} <= set(told)
    assert told["matmul_fp32_tflop_per_s"] > 0 and told["sustained_tflop_per_s"] > 0
