"""Two jobs in turns: all processes of one rest while the other computes, and the rests are taken out of its clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from samples.faults import turns
from samples.faults.observe import JobWentWrong
from samples.faults.runner import faster_by
from samples.faults.scenario import Conditions, Job
from samples.faults.turns import Player

from recordings import plan, recording
from rn50_advisor.advisor.trials.resting import without_rests

PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    family = psutil.Process(process.pid).children()
    yield Player(process, tmp_path)
    for each in [*family, process]:
        each.kill()
    process.wait()
    process.stdout.close()


def states(player: Player) -> set[str]:
    root = psutil.Process(player.process.pid)
    family = [root, *root.children(recursive=True)]
    assert len(family) == 2, "the child is in a session of its own"
    return {each.status() for each in family}


def test_a_turn_ends_in_a_rest_and_a_failed_job_ends_the_measurement(player: Player, tmp_path: Path) -> None:
    assert player.turn()
    assert states(player) == {psutil.STATUS_STOPPED}
    (tmp_path / "output.txt").write_text("ValueError: no such data set\n")
    psutil.Process(player.process.pid).children()[0].kill()
    player.process.kill()
    with pytest.raises(JobWentWrong, match="no such data set"):
        player.turn()


def test_when_one_job_fails_the_other_hears_that_it_is_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('told', 'w').close(), sys.exit(0)))\n"
        "time.sleep(60)\n"
    )
    scripts = {"waits.py": told, "fails.py": "raise SystemExit(3)"}
    monkeypatch.setattr(
        turns,
        "command",
        lambda job, _, place: [sys.executable, "-c", f"import os; os.chdir({str(place)!r})\n{scripts[job.script]}"],
    )
    with pytest.raises(JobWentWrong, match="exit code 3"):
        turns.in_turns([Job("waits.py"), Job("fails.py")], Conditions(), tmp_path)
    assert (tmp_path / "turns-0" / "told").exists(), "it was stopped, and would have heard nothing"


def test_a_job_that_rested_is_as_fast_as_one_that_did_not() -> None:
    made = recording({0: plan(60, forward=30, backward=60)})
    rows = made.steps[0]
    halfway = int(rows["t_end_ns"][40])
    rested = {0: rows.copy()}
    for column in ("t_start_ns", "t_end_ns"):
        rested[0][column][41:] += 5_000_000_000
    both = (made, without_rests(type(made)(made.meta, steps=rested), [(halfway, halfway + 5_000_000_000)]))
    assert faster_by(both, 0) == pytest.approx(1.0)
    assert faster_by((made, type(made)(made.meta, steps=rested)), 0) < 0.7  # type: ignore[operator]
    assert rows["t_end_ns"][-1] == made.steps[0]["t_end_ns"][-1], "its own times are left alone"


def test_too_few_steps_are_no_speed() -> None:
    assert faster_by((recording({}), recording({0: plan(60, forward=30)})), 0) is None
