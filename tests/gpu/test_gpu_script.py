"""The script for GPU machines: its sections, their time, their results and the files that it collects, with a stand-in for the advisor."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from samples.faults.__main__ import choose

from waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "gpu"
SCRIPT = FOLDER / "run_on_gpu.sh"
# Answers as Python and the advisor would: each job is healthy except for a note, and every check passes.
LOOKED = ", ".join(
    f'{{"rule": "{rule}", "state": "clear"}}'
    for rule in ("CMP001", "CMP002", "CMP003", "CMP004", "CMP009", "CMP010", "H2D001", "H2D002")
)
PYTHON = f"""#!/bin/bash
case "$*" in
"-m rn50_advisor.advisor.cli run"*)
    while [ "$1" != --report ]; do [ "$1" = --name ] && name=$2; shift; done
    mkdir -p "$(dirname "$2")/runs/20260102-030405-$name"
    echo '{{"verdict": {{"state": "healthy", "rule": null}}, "findings": [{{"rule": "CMP006", "severity": "info"}}],
        "outcomes": [{LOOKED}]}}' >"$2"
    ;;
"-m rn50_advisor.advisor.cli bundle"*)
    while [ "$1" != -o ]; do shift; done
    head -c ${{BUNDLE_KIB:-1}}K /dev/urandom >"$2"
    ;;
*report_check.py*) exec {sys.executable} "$@" ;;
*facts_check.py*) echo "as the job did" ;;
esac
"""


def environment(folder: Path, python: str, more: dict[str, str]) -> dict[str, str]:
    (folder / "python").write_text(python)
    (folder / "python").chmod(0o755)
    variables = {
        "PYTHON": str(folder / "python"),
        "GPU_RUNS": str(folder / "runs"),
        "GPU_RESULTS": str(folder / "home.tar.gz"),
        "GPU_SHM_KIB": str(8 << 20),
    }
    return os.environ | variables | more


def run(folder: Path, *sections: str, python: str = PYTHON, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT), *sections],
        env=environment(folder, python, more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def brought(folder: Path) -> set[str]:
    with tarfile.open(folder / "home.tar.gz") as results:
        return {name.removeprefix("./") for name in results.getnames()} - {".", "recordings"}


def line_of(output: str, check: str) -> str:
    """The first line about a check."""
    return next(line for line in output.splitlines() if re.match(rf"{check} +(ok|FAILED|NOT RUN)", line))


def test_only_the_sections_that_are_named_run_and_all_that_they_leave_is_one_file(tmp_path: Path) -> None:
    first = run(tmp_path, "ranks")
    assert first.returncode == 0, first.stdout + first.stderr
    names = ["two-gloo-ranks-one-gpu", "one-nccl-rank"]
    assert re.findall(r"(\S+) +ok: healthy", first.stdout.split("\n\n")[-1]) == names
    of_names = {f"{name}.{end}" for name in names for end in ("json", "log")}
    recordings = {"recordings/expected.tsv", *(f"recordings/{name}.tar.gz" for name in names)}
    assert brought(tmp_path) == {"shm.txt", "left-out.txt", "checks-ranks.txt"} | of_names | recordings
    assert run(tmp_path, "input").returncode == 1
    assert {"checks-input.txt", "checks-ranks.txt", "input-starved.json"} <= brought(tmp_path), "of calls before, too"
    assert not any(name.startswith("runs") for name in brought(tmp_path)), "recordings are collected as bundles"


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
    assert said in line_of(run(tmp_path, "input" if check == "batch-8" else "precision", python=python).stdout, check)


def test_seeded_faults_that_could_not_run_are_not_right(tmp_path: Path) -> None:
    writing = 'while [ "$1" != --json ]; do shift; done; echo \'{}\' >"$2"'
    seeded = PYTHON.replace("*facts_check", f"*samples.faults*) {writing} ;;\n*facts_check")
    assert re.search(r"faults-compute +ok", run(tmp_path, "faults-compute", python=seeded).stdout)
    done = run(tmp_path, "faults-compute", python=seeded.replace("{}", "no NVIDIA GPU in this machine"))
    assert done.returncode == 1 and re.search(r"faults-compute +FAILED", done.stdout)


def test_the_sections_of_seeded_faults_have_each_of_them_once(tmp_path: Path) -> None:
    asking = PYTHON.replace("*facts_check", '*samples.faults*) echo "asked $*" ;;\n*facts_check')
    done = run(tmp_path, "faults-compute", "faults-transfer", "faults-launch", python=asking)
    patterns = re.findall(r"--only (\S+)", done.stdout.split("\n\n")[-1])
    named = [scenario.name for pattern in patterns for scenario in choose([pattern], "all")]
    assert sorted(named) == sorted(scenario.name for scenario in choose(["*gpu*"], "all") if runs_on_a_gpu(scenario))


def runs_on_a_gpu(scenario: object) -> bool:
    return any(type(fixture).__name__ == "NvidiaGpu" for fixture in scenario.fixtures)  # type: ignore[attr-defined]


@pytest.mark.parametrize("place", ["GPU_RUNS", "GPU_RESULTS", "OUT"])
def test_nothing_is_written_into_the_checkout(tmp_path: Path, place: str) -> None:
    inside = ROOT / "tests" / "gpu-runs"
    done = run(tmp_path, "ranks", **{"GPU_RESULTS": "", place: str(inside)})
    assert done.returncode == 2 and "is inside the checkout" in done.stderr
    assert not inside.exists() and not (tmp_path / "runs").exists()


def test_the_results_go_where_the_machine_collects_them(tmp_path: Path) -> None:
    assert run(tmp_path, "ranks", GPU_RESULTS="", OUT=str(tmp_path / "out")).returncode == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["results.tar.gz"]


def test_the_commands_of_carried_wheels_are_found(tmp_path: Path) -> None:
    (tmp_path / "site" / "bin").mkdir(parents=True)
    (tmp_path / "site" / "bin" / "py-spy").write_text("#!/bin/sh\necho carried py-spy\n")
    (tmp_path / "site" / "bin" / "py-spy").chmod(0o755)
    done = run(tmp_path, "machine", PYTHONPATH=f"{tmp_path}:{tmp_path / 'site'}")
    assert "carried py-spy" in line_of(done.stdout, "py-spy")


WATCHED = '"-m rn50_advisor.advisor.cli run"*)'
SLOW = PYTHON.replace(WATCHED, f'*"--name one-nccl-rank"*) echo begun; exec sleep 50 ;;\n{WATCHED}')
# ends in order when it is told to, as the advisor does: with a report
CUT = PYTHON.replace(
    WATCHED,
    f"""*"--name fp32"*) trap 'echo "{{}}" >"$GPU_RUNS/fp32.json"; exit 143' TERM; sleep 50 & wait ;;\n{WATCHED}""",
)


@pytest.mark.parametrize("limit", ["GPU_CHECK_S", "GPU_SECTION_S", "GPU_CALL_S"])
def test_what_takes_too_long_is_cut_and_what_was_found_is_kept(tmp_path: Path, limit: str) -> None:
    """On a busy machine other checks may be cut, too: nothing is said of them here."""
    assert run(tmp_path, "ranks").returncode == 0
    done = run(tmp_path, "precision", "memory", python=CUT, **{limit: "3"})
    assert "NOT RUN: " in line_of(done.stdout, "fp32") and done.returncode in {1, 3}
    assert {"checks-ranks.txt", "one-nccl-rank.json", "checks-precision.txt"} <= brought(tmp_path)
    if limit == "GPU_CALL_S":  # the rest of the call is named
        assert "NOT RUN: no time is left" in line_of(done.stdout, "memory-creeps")
    else:  # the next check or section has time of its own
        assert "no time is left" not in line_of(done.stdout, "memory-creeps")


def test_the_report_of_a_job_that_was_cut_is_not_checked_further(tmp_path: Path) -> None:
    done = run(tmp_path, "precision", python=CUT, GPU_CHECK_S="3")
    assert "NOT RUN: cut, see fp32.log" in line_of(done.stdout, "fp32")
    assert "fp32 facts" not in done.stdout
    assert "fp32.cut.json" in brought(tmp_path) and "recordings/fp32.tar.gz" not in brought(tmp_path)


def test_a_call_that_is_cut_from_outside_says_so_and_leaves_its_results(tmp_path: Path) -> None:
    process = subprocess.Popen(
        ["bash", str(SCRIPT), "ranks", "input"],
        env=environment(tmp_path, SLOW, {}),
        stdout=subprocess.PIPE,
        text=True,
    )
    log = tmp_path / "runs" / "one-nccl-rank.log"
    wait_for(lambda: log.exists() and log.read_text(), "the second job")
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 3 and "NOT RUN: the call was cut" in line_of(output, "ranks")
    assert {"two-gloo-ranks-one-gpu.json", "checks-ranks.txt"} <= brought(tmp_path)


def test_results_are_packed_after_each_check(tmp_path: Path) -> None:
    """A machine that is taken away leaves no time to pack them."""
    killing = SLOW.replace("exec sleep 50", "kill -KILL $(ps -o ppid= $PPID)")
    assert run(tmp_path, "ranks", python=killing).returncode == -signal.SIGKILL
    assert "two-gloo-ranks-one-gpu.json" in brought(tmp_path)


@pytest.mark.parametrize(("kib", "code"), [(500, 0), (520, 1)])
def test_a_recording_that_is_too_large_to_commit_is_not_kept(tmp_path: Path, kib: int, code: int) -> None:
    done = run(tmp_path, "ranks", BUNDLE_KIB=str(kib))
    assert done.returncode == code
    assert ("recordings/one-nccl-rank.tar.gz" in brought(tmp_path)) is not bool(code)
    assert ("more than 512: not kept" in done.stdout) is bool(code)


def test_files_that_are_too_large_to_take_home_are_named(tmp_path: Path) -> None:
    talking = PYTHON.replace("shift; done\n", "shift; done; head -c 3M /dev/urandom\n", 1)
    done = run(tmp_path, "ranks", python=talking)
    assert done.returncode == 1 and "too large to take home: " in done.stdout
    assert "one-nccl-rank.json" in brought(tmp_path) and "one-nccl-rank.log" not in brought(tmp_path)


@pytest.mark.parametrize(
    ("kib", "workers"),
    [
        (64 << 10, {"item-each-tenth": None, "fp32": "1", "amp-channels-last": None}),  # a container's default
        (1 << 20, {"item-each-tenth": "8", "fp32": "8", "amp-channels-last": "3"}),
        (16 << 20, {"item-each-tenth": "8", "fp32": "8", "amp-channels-last": "8"}),
    ],
)
def test_workers_are_as_many_as_shared_memory_holds_batches_for(
    tmp_path: Path, kib: int, workers: dict[str, str | None]
) -> None:
    (tmp_path / "nproc").write_text("#!/bin/sh\necho 16\n")
    (tmp_path / "nproc").chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    telling = PYTHON.replace("while [", 'echo "$@"; while [', 1)
    done = run(tmp_path, "tenth", "precision", python=telling, GPU_SHM_KIB=str(kib), PATH=path)
    assert f"/dev/shm: {kib >> 10} MiB free, 16 cores" in done.stdout
    for name, count in workers.items():
        log = tmp_path / "runs" / f"{name}.log"
        found = re.search(r"--workers (\d+)", log.read_text()) if log.exists() else None
        assert (found and found[1]) == count
        assert ("NOT RUN: /dev/shm" in line_of(done.stdout, name)) is (count is None)


def test_a_section_that_there_is_not_runs_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "ranks", "rank")
    assert done.returncode == 2 and "no call or section rank;" in done.stderr
    assert not (tmp_path / "runs").exists()


def listed(folder: Path) -> tuple[dict[str, list[str]], dict[str, tuple[float, float]]]:
    """Returns the sections of each call, and the planned and the longest minutes of each section."""
    lines = [line.split(maxsplit=1) for line in run(folder, "list").stdout.splitlines()]
    times = {name: re.findall(r"[\d.]+", rest) for name, rest in lines if " min, cut after " in rest}
    calls = {name: rest.split() for name, rest in lines if name not in times}
    return calls, {name: (float(planned), float(cut)) for name, (planned, cut) in times.items()}


def test_each_call_fits_ten_minutes_and_the_first_three_twenty_five(tmp_path: Path) -> None:
    calls, minutes = listed(tmp_path)
    assert all(planned < cut for planned, cut in minutes.values())
    longest = {call: sum(minutes[name][1] for name in names) for call, names in calls.items()}
    assert all(minute <= 500 / 60 for minute in longest.values()), longest
    first = [call for call in calls if call.startswith("first-")]
    assert len(first) == 3 and 3 * 500 <= 25 * 60
    assert [name for call in first for name in calls[call]] == [
        "machine", "marks", "tenth", "utilisation", "precision", "deep", "habits", "memory",
    ]  # fmt: skip
    assert [name for names in calls.values() for name in names] == list(minutes)


def test_the_readme_describes_each_section_and_call(tmp_path: Path) -> None:
    calls, minutes = listed(tmp_path)
    readme = (FOLDER / "README.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d.]+), ([\d.]+) \|", readme, re.MULTILINE)
    assert {name: (float(planned), float(cut)) for name, planned, cut in rows} == minutes
    assert all(f"run_on_gpu.sh {call}" in readme for call in calls if call.startswith("first-"))


def test_the_readme_carries_what_the_advisor_needs() -> None:
    """Without a network nothing that is forgotten can be fetched."""
    readme = (FOLDER / "README.md").read_text()
    command = re.search(r"^python3 -m pip download (.*?[^\\])\n", readme, re.MULTILINE | re.DOTALL)
    assert command
    carried = {canonicalize_name(word) for word in re.findall(r"[\w.-]+", command[1])}
    needed: set[tuple[str, str]] = set()
    todo = [("rn50-advisor", "")]
    while todo:
        name, extra = todo.pop()
        if name == "numpy" or (name, extra) in needed:  # numpy comes with torch
            continue
        needed.add((name, extra))
        for requirement in map(Requirement, distribution(name).requires or []):
            marker = requirement.marker
            if marker is None or marker.evaluate({"python_version": "3.12", "extra": extra}):
                todo += [(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)]
    assert {name for name, _ in needed} - {"rn50-advisor"} <= carried


def test_the_shell_has_no_mistakes_that_can_be_seen() -> None:
    scripts = [str(FOLDER / name) for name in ("run_on_gpu.sh", "sections.sh")]
    for script in scripts:
        subprocess.run(["bash", "-n", script], check=True)
    if shellcheck := shutil.which("shellcheck"):
        subprocess.run([shellcheck, "--external-sources", *scripts], check=True, cwd=ROOT)
