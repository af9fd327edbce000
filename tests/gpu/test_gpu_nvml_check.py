"""The check of the GPU probe against nvidia-smi, on the fake driver and a stand-in for nvidia-smi: it must notice differences."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from samples.gpus.machines import H100, machine

CHECK = Path(__file__).resolve().parents[1] / "gpu" / "nvml_check.py"
# memory.total in MiB, power.limit, clocks.max.sm, pcie.link.width.current, temperature.gpu
SAID = {0: "81559, 700.00, 1980, 16, 58", 1: "81559, 700.00, 1980, 16, 59"}


def checked(driver: Path, folder: Path, lines: dict[int, str], *more: str) -> tuple[int, list[str], dict[str, Any]]:
    """Returns (exit code, lines printed, report)."""
    (folder / "script").write_text("\n".join([*machine(H100, 2), *more]) + "\n")
    cases = "\n".join(f"--id={index}) echo '{line}' ;;" for index, line in lines.items())
    (folder / "nvidia-smi").write_text(f'#!/bin/sh\ncase "$1" in\n{cases}\nesac\n')
    (folder / "nvidia-smi").chmod(0o755)
    variables = {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML_SCRIPT": str(folder / "script")}
    environment = os.environ | variables | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, str(CHECK), str(folder / "nvml.json"), "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout.splitlines(), json.loads((folder / "nvml.json").read_text())


def test_where_both_say_the_same_it_says_so_and_what_each_question_costs(fake_driver: Path, tmp_path: Path) -> None:
    code, (summary, verdict), report = checked(
        fake_driver, tmp_path, SAID, "fail nvmlDeviceGetTotalEnergyConsumption 3"
    )
    assert code == 0 and summary.startswith("2 GPUs, ") and verdict == "nvidia-smi agrees"
    assert [device["index"] for device in report["devices"]] == [0, 1]
    assert report["last"]["gpu.power_limit_w gpu:1"] == 700.0
    costs = report["costs_us"]
    assert costs["gpu.energy_j"] == -3.0, "refused"
    assert all(costs[name] > 0 for name in ("gpu.util_pct", "all fields", "processes", "gpm sample"))


@pytest.mark.parametrize(
    ("line", "more", "differs"),
    [
        ("81559, 700.00, 1755, 16, 59", (), "GPU 1 clocks.max.sm: nvidia-smi 1755.0, probe 1980.0"),
        ("81559, 700.00, 1980, 8, 59", (), "GPU 1 pcie.link.width.current: nvidia-smi 8.0, probe 16.0"),
        (
            "81559, 700.00, 1980, 16, 59",
            ("fail nvmlDeviceGetTemperature 3 gpu 1",),
            "temperature.gpu: nvidia-smi 59.0, probe None",
        ),
        ("[N/A], 700.00, 1980, 16, 62", (), ""),  # memory unknown to nvidia-smi; a few degrees warmer
    ],
)
def test_where_they_differ_it_fails(
    fake_driver: Path, tmp_path: Path, line: str, more: tuple[str, ...], differs: str
) -> None:
    code, (_, *lines), report = checked(fake_driver, tmp_path, {**SAID, 1: line}, *more)
    assert code == bool(differs)
    assert differs in lines[0] and report["disagreements"] == ([lines[0]] if differs else [])


def test_a_driver_that_does_not_open_is_no_success(fake_driver: Path, tmp_path: Path) -> None:
    code, (summary,), report = checked(fake_driver, tmp_path, SAID, "fail nvmlInitWithFlags 9")
    assert code == 1 and summary.startswith("0 GPUs, ") and "not loaded" in report["gaps"][0]["reason"]
