"""Where there is no compiler for the fake driver the tests over it are skipped aloud, and fail where nobody would read that."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEST = "probes/host/gpu/test_gpu_probe.py::test_a_driver_without_a_gpu"


@pytest.mark.parametrize(("ci", "code", "outcome"), [("", 0, "1 skipped"), ("true", 1, "1 error")])
def test_tests_over_the_fake_driver_need_a_compiler(tmp_path: Path, ci: str, code: int, outcome: str) -> None:
    environment = os.environ | {"PATH": str(tmp_path), "CI": ci}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        str(Path(__file__).resolve().parents[1] / TEST),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, outcome in done.stdout) == (code, True), done.stdout
    assert "THE GPU PROBE IS NOT TESTED HERE" in done.stdout
