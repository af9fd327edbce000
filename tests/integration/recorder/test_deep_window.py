"""A deep window in real training on the CPU: what it sees, and that neither numbers, output nor the job's own profiler notice it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from test_recorder_jobs import rings, run, run_sound, steps

from cli_process import advisor
from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.run.sidefiles.recorder_requests import FROM_STEP, STEPS, ask
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.probes.rank.layout import FLAG_DEEP
from traced_runs import Event, of, traced

pytestmark = pytest.mark.torch

SEEDED = Path(__file__).resolve().parents[2] / "jobs" / "seeded.py"
# a 3x3 convolution of 4 channels over 6x6 outputs, weight gradient only beside it, and a linear layer of 144x4 with both gradients
FLOPS = 8 * (2 * (2 * 4 * 36 * 27) + 3 * (2 * 144 * 4))


def test_two_steps_of_a_job_are_seen_and_the_job_is_the_same_bit_by_bit(tmp_path: Path) -> None:
    command = [sys.executable, str(SEEDED), "1"]
    alone = subprocess.run(command, capture_output=True, check=True, timeout=120)
    watched = advisor(
        "run", "--deep", "--no-tui", "--run-dir", tmp_path, "--name", "deep", "--", *command, cwd=tmp_path
    )
    assert watched.returncode == 0 and watched.stdout == alone.stdout
    assert b"profiler_start" not in watched.stderr and b"Kineto" not in watched.stderr
    [folder] = tmp_path.glob("*-deep")
    recording = read_recording(folder)
    assert not [gap for gap in recording.gaps if gap.metric.startswith("kernel.window")]
    [event] = [event for event in recording.events if event.kind == "deep"]
    assert (event.data["device"], event.data["first_step"], event.data["steps"]) == ("cpu", 10, 2)
    assert event.data["classes"].keys() >= {"conv", "matmul", "norm", "elementwise", "optimizer", "input"}
    assert event.data["flops"] == FLOPS and event.data["precision"] == "fp32"
    assert 0 < sum(event.data["classes"].values()) <= event.data["step_s"] and event.data["cost_s"] > 0
    assert json.loads(gzip.decompress((folder / event.data["trace"]).read_bytes()))["traceEvents"]
    assert not list(folder.glob("deep-*.json"))
    table = recording.steps[0]
    assert table["step"][(table["flags"] & FLAG_DEEP) != 0].tolist() == [10, 11, 12]
    lies_in_the_time_of_its_steps(traced(recording, folder=folder))


def lies_in_the_time_of_its_steps(trace: list[Event]) -> None:
    """The profiler has a clock of its own, which began long ago or in another year."""
    starts = {event["args"]["step"]: event["ts"] for event in of(trace, "step")}
    operators = of(trace, "operator")
    assert {"aten::conv2d", "aten::linear"} <= {event["name"] for event in operators}
    assert all(starts[10] < event["ts"] < starts[12] + 500_000 for event in operators)


@pytest.mark.parametrize(("style", "opened"), [("begins", False), ("meets", True)])
def test_the_jobs_own_profiler_sees_what_it_would_have_seen(tmp_path: Path, style: str, opened: bool) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    ask(folder, tmp_path)
    watched = run("profiled.py", style, folder=folder)
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == "2 2 False\n", "two steps, and no mark of ours"
    assert not list(folder.glob("error-*")) and len(steps(rings(folder)[0])) >= 19
    [facts] = folder.glob("facts-*.json")
    window = json.loads(facts.read_text())["deep"]
    assert (window["state"], window["reason"]) == ("refused", "the job has a profiler of its own")
    assert ("start_s" in window) is opened  # and gave way


@pytest.mark.parametrize("style", ["loader", "memory"])
def test_an_evaluation_is_no_part_of_what_is_seen(tmp_path: Path, style: str) -> None:
    """None of the jobs forks: neither loader has workers."""
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    ask(folder, tmp_path)
    watched = run("evaluating.py", style, folder=folder)
    assert (watched.returncode, watched.stdout) == (0, "13 False\n"), watched.stderr
    assert not list(folder.glob("error-*"))
    [facts] = folder.glob("facts-*.json")
    window = json.loads(facts.read_text())["deep"]
    assert (window["state"], window["first_step"], window["steps"]) == ("done", FROM_STEP + 6, STEPS)
    trace = Path(window["path"]).read_text()
    assert "aten::conv2d" in trace and "aten::celu" not in trace, "the model has that in its evaluation alone"
    [ring] = rings(folder)
    seen = [row["step"] for flags, row in steps(ring) if flags & FLAG_DEEP]
    assert seen == [10, 11, 16, 17, 18], "the first window gave way in its second step"


def windows(folder: Path) -> dict[int, DeepWindow]:
    """Profiler windows by rank; other ranks have none."""
    found = {}
    for path in folder.glob("facts-*.json"):
        facts = json.loads(path.read_text())
        if "deep" in facts:
            assert facts["deep"]["state"] == "done", facts["deep"]
            found[facts["rank"]] = window_of(json.loads(Path(facts["deep"]["path"]).read_text()), rank=facts["rank"])
    return found


def test_a_compiled_model_is_seen_and_computes_what_it_computes_alone(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    ask(folder, tmp_path)
    watched = run("compiling/steps.py", folder=folder)
    assert (watched.returncode, watched.stdout) == (0, "True 1\n"), watched.stderr
    assert len(steps(rings(folder)[0])) == 32
    [window] = windows(folder).values()
    assert window.classes.keys() >= {"compiled", "conv", "matmul", "norm", "optimizer"} and window.flops == FLOPS


def test_of_two_ranks_one_is_seen_with_what_they_exchange(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    ask(folder, tmp_path)
    watched = run_sound("spawned.py", tmp_path, folder)
    assert watched.returncode == 0 and watched.stdout == "", watched.stderr
    looked_into = {}
    for reader in rings(folder):
        rows = steps(reader)
        assert len(rows) == 20
        looked_into[reader.identity.rank] = [row["step"] for flags, row in rows if flags & FLAG_DEEP]
    assert looked_into == {0: list(range(FROM_STEP, FROM_STEP + STEPS + 1)), 1: []}
    found = windows(folder)
    assert found.keys() == {0} and found[0].nccl_s > 0 and found[0].nccl_overlap_share is not None
