"""`try`'s command line: the job stands behind two dashes, and jobs that are not ours to stop are refused before anything starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import trial_samples as samples
from rn50_advisor.advisor.commands.tried.try_fixes import refuse_elsewhere, try_
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME
from rn50_advisor.advisor.store.run_bundle import make_bundle
from rn50_advisor.advisor.store.trial_history import history_file, keep, past_trials
from rn50_advisor.advisor.trials import containment, trying
from rn50_advisor.advisor.trials.trying import Settings
from written_runs import written_run


def call(*arguments: str) -> Result:
    return CliRunner().invoke(try_, arguments)


@pytest.mark.parametrize("arguments", [(), ("latest",), ("--fix", "DAT003"), ("--",)])
def test_without_a_command_behind_dashes_it_says_where_to_put_it(arguments: tuple[str, ...]) -> None:
    done = call(*arguments)
    assert isinstance(done.exception, UsageError)
    assert "two dashes" in done.exception.hint


def test_the_history_needs_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "no trial is kept" in " ".join(call("--history").output.split())
    trial = samples.WORKERS
    file = history_file({"XDG_STATE_HOME": str(tmp_path)})
    assert file is not None
    keep(past_trials(Tried((trial,), ("python",)), day="2026-11-30", torch="2.9.0", device="CPU"), file)
    assert trial.rule in call("--history").output


def test_options_may_stand_before_and_behind_the_run(tmp_path: Path) -> None:
    done = call(
        "--budget", "90s", "no-such-run", "--fix", "DAT003,h2d001", "--run-dir", str(tmp_path), "--", "python", "--fix"
    )
    assert isinstance(done.exception, NotARun)
    assert "no-such-run" in done.exception.message


class Foreseen:
    """In the place of `Trying`: knows its results."""

    torch, device = "2.14.1", "CPU"

    def __init__(self, settings: Settings, diagnose: object, tell: Callable[[str], None]) -> None:
        self.argv, self.tell = settings.argv, tell

    def run(self, report: Report | None = None) -> Tried:
        self.tell("starting the job as it is")
        return replace(samples.several(), argv=tuple(self.argv))


@pytest.fixture
def foreseen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(trying, "Trying", Foreseen)
    monkeypatch.setattr(containment, "choose", lambda command: contextlib.nullcontext())


@pytest.mark.usefixtures("foreseen")
def test_the_result_is_found_again_with_the_run_whose_advice_was_tried(tmp_path: Path) -> None:
    run = written_run(tmp_path / "runs" / "20260101-120000-slow")
    done = call("slow", "--run-dir", str(tmp_path / "runs"), "--", "python", "train.py")
    assert done.exit_code == 0, done.output
    tried = read_job(run).tried
    assert tried is not None and tried.argv == ("python", "train.py") and tried.best == samples.WORKERS
    lines = done.stderr.splitlines()
    assert lines[0] == "rn50-advisor: starting the job as it is"
    assert lines[-1].startswith(f"rn50-advisor: kept with the run: rn50-advisor report {run}")


@pytest.mark.usefixtures("foreseen")
def test_where_it_cannot_be_kept_it_says_why_and_prints_the_result_all_the_same(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run")
    bundle = make_bundle(run, tmp_path / "b.tar.gz")
    (run / TRIED_NAME).write_text("mine")
    for given, why in ((run, "no result of try for this run"), (bundle, "no folder of one run")):
        done = call(str(given), "--", "python", "train.py")
        assert done.exit_code == 0, done.output
        assert "1.52× as fast" in done.stdout and why in done.stderr
    assert (run / TRIED_NAME).read_text() == "mine"


@pytest.mark.usefixtures("foreseen")
def test_without_a_run_nothing_is_kept_with_one(tmp_path: Path) -> None:
    run = written_run(tmp_path / "runs" / "a")
    done = call("--run-dir", str(tmp_path / "runs"), "--", "python", "train.py")
    assert done.exit_code == 0 and "kept" not in done.stderr
    assert [path.name for path in run.iterdir()] == ["run.sqlite"]


@pytest.mark.parametrize(("value", "why"), [("soon", "no time"), ("10s", "four pairs"), ("-5m", "no time")])
def test_a_budget_is_a_time_for_four_pairs_at_least(value: str, why: str) -> None:
    done = call("--budget", value, "--", "python", "train.py")
    assert done.exit_code == 2
    assert why in done.output


@pytest.mark.parametrize(
    "command",
    [
        ("sbatch", "job.sh"),
        ("/usr/bin/srun", "python", "train.py"),
        ("ray", "job", "submit"),
        ("torchrun", "--nnodes=2", "train.py"),
        ("torchrun", "--nnodes", "2:4", "train.py"),
        ("accelerate", "launch", "--num_machines", "4", "train.py"),
    ],
)
def test_ranks_elsewhere_are_refused(command: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refusal:
        refuse_elsewhere(command)
    assert refusal.value.hint


@pytest.mark.parametrize(
    "command",
    [
        ("torchrun", "--nnodes=1", "--nproc_per_node=8", "train.py"),
        ("python", "train.py", "--nnodes", "many"),
        ("bash", "srun"),
    ],
)
def test_jobs_of_this_machine_are_not(command: tuple[str, ...]) -> None:
    refuse_elsewhere(command)
