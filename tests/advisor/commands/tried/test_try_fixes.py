"""`try`'s command line: the job stands behind two dashes, and jobs that are not ours to stop are refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import trial_samples as samples
from rn50_advisor.advisor.commands.tried.try_fixes import refuse_elsewhere, try_
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.store.trial_history import history_file, keep, past_trials


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
