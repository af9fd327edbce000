"""Earlier measurements that lie beside the runs are kept with a run if they are of this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench_samples import OPTIONS, machine
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, Sweep
from rn50_advisor.advisor.model.documents.machine_triage import BOOT_ID, DATA_PLACE, MADE_AT, UNIX_SECONDS, Band
from rn50_advisor.advisor.run.machine_results import BENCH_NAME, FILE_NAME, known_machine, known_sweeps
from rn50_advisor.advisor.triage.found_checks import fact, judged
from rn50_advisor.advisor.triage.triage_runner import conclude

BOOT = "9a6f2c4e-0000-4000-8000-000000000001"
SWEEP = Sweep("bf16", True, 1, "synthetic", (2, 4), (100.0, 180.0), 8, None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine that was booted once."""
    root = tmp_path / "root"
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text(BOOT + "\n")
    return root


def triage(boot: str = BOOT) -> str:
    items = [
        fact(BOOT_ID, boot),
        fact(MADE_AT, 1.75e9, UNIX_SECONDS),
        fact(DATA_PLACE, "/data (nvme0n1)"),
        judged("disk.sync_ms", 40.0, "ms", Band(None, 20.0, "usual"), remedy="fix", hint="slow"),
        judged("memory.copy_gb_per_s", 20.0, "GB/s", Band(10.0, None, "usual"), remedy="fix"),
        fact("cpu.model", "EPYC 7R13"),
    ]
    return json.dumps(conclude(items).as_json())


def test_numbers_of_a_triage_since_the_last_boot_are_kept(tmp_path: Path, root: Path) -> None:
    (tmp_path / FILE_NAME).write_text(triage())
    known = known_machine(tmp_path, root)
    assert known["made_at"] == 1.75e9
    assert "cpu.model" not in known["checks"], "only numbers are cited"
    disk, memory = known["checks"]["disk.sync_ms"], known["checks"]["memory.copy_gb_per_s"]
    assert (disk["value"], disk["unit"], disk["hi"], disk["place"]) == (40.0, "ms", 20.0, "/data (nvme0n1)")
    assert (memory["value"], memory["lo"], memory["source"]) == (20.0, 10.0, "usual")
    assert "place" not in memory


@pytest.mark.parametrize("text", [None, "", "{", "[1]", triage("another boot"), '{"schema": "rn50-advisor/triage/9"}'])
def test_any_other_file_is_no_triage_of_this_machine(tmp_path: Path, root: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / FILE_NAME).write_text(text)
    assert known_machine(tmp_path, root) == {}


def test_a_machine_that_hides_its_boot_cites_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(triage())
    assert known_machine(tmp_path, tmp_path / "empty") == {}


def bench(host: str, *sweeps: Sweep) -> Benchmark:
    return Benchmark(0.0, replace(machine(), host=host), OPTIONS, (), sweeps=sweeps)


def swept(folder: Path, made: Benchmark) -> Any:
    (folder / BENCH_NAME).write_text(json.dumps(made.as_json()))
    return known_sweeps(folder)


def test_sweeps_of_one_device_on_synthetic_data_are_kept(tmp_path: Path) -> None:
    others = (replace(SWEEP, devices=2), replace(SWEEP, data="loader"))
    known = swept(tmp_path, bench(os.uname().nodename, SWEEP, *others))
    assert (known["model"], known["image_size"]) == ("resnet50", 224)
    assert known["device"] == "NVIDIA A100-SXM4-40GB"
    (sweep,) = known["sweeps"]
    assert list(sweep["batches"]) == [2, 4]
    assert list(sweep["images_per_s"]) == [100.0, 180.0]


def test_a_benchmark_of_another_host_is_ignored(tmp_path: Path) -> None:
    assert swept(tmp_path, bench("another", SWEEP)) == {}
