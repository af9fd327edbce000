"""The script for GPU machines: its sections, their results and the files that it collects, with a stand-in for the advisor."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "gpu"
SCRIPT = FOLDER / "run_on_gpu.sh"
# Answers as Python and the advisor would: each job is healthy except for a note, and every check passes.
LOOKED = ", ".join(
    f'{{"rule": "{rule}", "state": "clear"}}'
    for rule in ("CMP001", "CMP002", "CMP003", "CMP004", "CMP009", "CMP010", "H2D001", "H2D002")
)
PYTHON = f"""#!/bin/bash
case "$*" in
"-m rn50_advisor.advisor.cli run"*)
    while [ "$1" != --report ]; do shift; done
    echo '{{"verdict": {{"state": "healthy", "rule": null}}, "findings": [{{"rule": "CMP006", "severity": "info"}}],
        "outcomes": [{LOOKED}]}}' >"$2"
    ;;
"- "*) exec {sys.executable} "$@" ;;
*facts_check.py*) echo "as the job did" ;;
esac
"""


def run(folder: Path, *sections: str, python: str = PYTHON) -> subprocess.CompletedProcess[str]:
    (folder / "python").write_text(python)
    (folder / "python").chmod(0o755)
    variables = {
        "PYTHON": str(folder / "python"),
        "GPU_RUNS": str(folder / "runs"),
        "GPU_RESULTS": str(folder / "home.tar.gz"),
    }
    command = ["bash", str(SCRIPT), *sections]
    return subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=60, check=False)


def brought(folder: Path) -> set[str]:
    with tarfile.open(folder / "home.tar.gz") as results:
        return {name.removeprefix("./") for name in results.getnames()} - {"."}


def test_only_the_sections_that_are_named_run_and_all_that_they_leave_is_one_file(tmp_path: Path) -> None:
    first = run(tmp_path, "ranks")
    assert first.returncode == 0, first.stdout + first.stderr
    assert re.findall(r"(\S+) +ok: healthy", first.stdout.split("\n\n")[-1])[:2] == [
        "two-gloo-ranks-one-gpu",
        "one-nccl-rank",
    ]
    names = ["two-gloo-ranks-one-gpu", "one-nccl-rank"]
    expected = {"checks-ranks.txt", *(f"{name}.{end}" for name in names for end in ("json", "log"))}
    assert brought(tmp_path) == expected
    (tmp_path / "runs/runs").mkdir()  # recordings are not collected, their bundles are
    assert run(tmp_path, "input").returncode == 1
    assert {"checks-input.txt", "checks-ranks.txt", "input-starved.json"} <= brought(tmp_path), "of calls before, too"
    assert "runs" not in brought(tmp_path)


def test_an_unexpected_verdict_is_printed_and_fails_the_call(tmp_path: Path) -> None:
    done = run(tmp_path, "input", "precision")
    assert done.returncode == 1
    assert re.search(r"input-starved +FAILED: said healthy \+CMP006, expected DAT003", done.stdout)
    assert re.search(r"amp-channels-last +ok: healthy", done.stdout)
    assert re.search(r"amp-channels-last facts +ok: as the job did", done.stdout)


def with_finding(rule: str, severity: str) -> str:
    return PYTHON.replace('"rule": "CMP006", "severity": "info"', f'"rule": "{rule}", "severity": "{severity}"')


@pytest.mark.parametrize(
    ("check", "python", "said"),
    [
        # clean is more than healthy: there must be no finding at all, and each rule must have been evaluated
        ("amp-channels-last", PYTHON, "ok: healthy"),
        ("amp-channels-last", with_finding("LOP005", "low"), "FAILED: said healthy +LOP005, expected clean"),
        (
            "amp-channels-last",
            PYTHON.replace('"CMP002", "state": "clear"', '"CMP002", "state": "not_measured"'),
            "expected -CMP002",
        ),
        # a rule that must not fire
        ("tf32", PYTHON, "ok: healthy"),
        ("tf32", PYTHON.replace('"CMP001", "state": "clear"', '"CMP001", "state": "fired"'), "expected -CMP001"),
        # one of two rules must fire
        ("batch-8", PYTHON, "FAILED: said healthy +CMP006, expected +CMP003|+CMP005"),
        ("batch-8", with_finding("CMP003", "high"), "ok: healthy +CMP003"),
        ("batch-8", with_finding("CMP005", "low"), "ok: healthy +CMP005"),
    ],
)
def test_each_word_about_a_report_is_held_to(tmp_path: Path, check: str, python: str, said: str) -> None:
    done = run(tmp_path, "input" if check == "batch-8" else "precision", python=python)
    (line,) = [line for line in done.stdout.splitlines() if line.split()[:1] == [check] and " facts " not in line][:1]
    assert said in line


def test_seeded_faults_that_could_not_run_are_not_right(tmp_path: Path) -> None:
    assert re.search(r"faults +ok", run(tmp_path, "faults").stdout)
    skipping = PYTHON.replace("*facts_check", '*samples.faults*) echo "no NVIDIA GPU in this machine" ;;\n*facts_check')
    done = run(tmp_path, "faults", python=skipping)
    assert done.returncode == 1 and re.search(r"faults +FAILED", done.stdout)


def test_a_section_that_there_is_not_runs_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "ranks", "rank")
    assert done.returncode == 2 and "no section rank;" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_the_readme_describes_each_section(tmp_path: Path) -> None:
    listed = run(tmp_path, "list").stdout.split()
    assert len(listed) == 11
    assert re.findall(r"^\| `(\w+)` \|", (FOLDER / "README.md").read_text(), re.MULTILINE) == listed
