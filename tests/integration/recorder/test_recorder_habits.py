"""Looks at waits, precision and the model in a real training process, which does not notice them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_recorder_jobs import INJECT, JOBS, rings, run

from rn50_advisor.advisor.run.rings.own_folder import hold

pytestmark = pytest.mark.torch


def test_a_job_is_looked_at_and_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = run("habits.py")
    monkeypatch.setenv("RN50_ADVISOR_SYNC_DEVICE", "cpu")
    watched = run("habits.py", folder=tmp_path)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert watched.stdout == alone.stdout and watched.stderr == alone.stderr
    assert alone.stdout.splitlines()[-1] == "{True} 2 0", "workers have torch as it is, and nothing was compiled anew"
    rings(tmp_path)
    facts = json.loads(next(tmp_path.glob("facts-*.json")).read_text())
    line = next(
        n for n, text in enumerate((JOBS / "habits.py").read_text().splitlines(), 1) if "# in each step" in text
    )
    # the seed of workers is read back too, on the host
    (item,) = [site for site in facts["syncs"]["sites"] if (site["call"], site["line"]) == ("item", line)]
    assert (item["looks"], item["phase"]) == (facts["syncs"]["looks"], "gap")
    assert facts["syncs"]["looks"] >= 3
    assert (facts["conv"]["autocast"], facts["conv"]["weight_layout"]) == ("bfloat16", "channels_last")
    assert facts["autocast"] == {"enabled": True, "device": "cpu", "dtype": "bfloat16"}
    assert facts["model"]["layers"]["Conv2d"] == 1 and facts["data_parallel"][0]["devices"] == 0


@pytest.mark.parametrize("where", ["inside", "nowhere"])
def test_of_a_compiled_model_autocast_and_weights_are_known(tmp_path: Path, where: str) -> None:
    alone, watched = run("compiling/autocast.py", where), run("compiling/autocast.py", where, folder=tmp_path)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert watched.stdout == alone.stdout and watched.stderr == alone.stderr
    assert alone.stdout.endswith(" 1 0\n"), "one graph, no break"
    rings(tmp_path)
    facts = json.loads(next(tmp_path.glob("facts-*.json")).read_text())
    assert facts["compiled_frames"] and "conv" not in facts
    assert facts["autocast"]["enabled"] is (where == "inside")
    assert facts["optimizer"]["convolutions"] == {
        "weights": 1,
        "dtypes": ["float32"],
        "channels_last": 1,
        "channels_first": 0,
    }


@pytest.mark.parametrize("detection", ["on", "off"])
def test_anomaly_detection_within_the_loop_is_seen_whenever_it_is_asked_for(tmp_path: Path, detection: str) -> None:
    watched = run("anomalous.py", detection, folder=tmp_path)
    assert watched.returncode == 0, watched.stderr
    rings(tmp_path)
    debugging = json.loads(next(tmp_path.glob("facts-*.json")).read_text())["debugging"]
    assert debugging["looks"] >= 2
    assert debugging["on"].get("anomaly detection", 0) == (debugging["looks"] if detection == "on" else 0)


TRAINS = """
import os
import sys
import one_core
import torch

def train(rank=0):
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(20):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    if "spawn" in sys.argv:
        os.sched_setaffinity(0, range(os.cpu_count()))  # what the ranks start with
        torch.multiprocessing.spawn(train, nprocs=2)
    else:
        train()
    print(f"{len(os.sched_getaffinity(0))} ", end="")  # in one piece: ranks share the pipe
"""
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is no core to take")
@pytest.mark.parametrize(("launcher", "start", "ranks"), [((), "", 1), ((), "spawn", 2), (TORCHRUN, "", 2)])
def test_the_import_that_binds_a_rank_to_a_core_is_known(
    tmp_path: Path, launcher: tuple[str, ...], start: str, ranks: int
) -> None:
    (tmp_path / "library" / "one_core").mkdir(parents=True)
    (tmp_path / "library" / "one_core" / "__init__.py").write_text(
        "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    )
    (job := tmp_path / "train.py").write_text(TRAINS)
    (folder := tmp_path / "rings").mkdir(mode=0o700)
    hold(folder)
    command, library = [sys.executable, *launcher, str(job), start], str(tmp_path / "library")
    recorded = {"OMP_NUM_THREADS": "1", "RN50_ADVISOR_DIR": str(folder), "PYTHONPATH": f"{INJECT}:{library}"}
    environment = {**os.environ, **recorded}
    watched = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert watched.returncode == 0, watched.stderr
    cores = [os.cpu_count()] if start else [1] * ranks
    assert [int(line) for line in watched.stdout.split()] == cores
    assert len(rings(folder)) == ranks
    for path in folder.glob("facts-*.json"):
        facts = json.loads(path.read_text())
        assert (len(facts["cpus_allowed"]), facts["cpus_at_start"]) == (1, len(os.sched_getaffinity(0)))
        assert facts["cpus_lost"] == {
            "file": str(job),
            "line": 4,
            "before": facts["cpus_at_start"],
            "after": 1,
            "module": "one_core",
            "by_import": True,
            "seen": {"file": str(job), "line": 5},
        }
