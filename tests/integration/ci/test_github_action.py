"""The GitHub Action: its steps, run in order as the runner does, with real training jobs and a stand-in for GitHub's API."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from change_services import forge
from cli_process import environment
from composite_action import Ran, Runner, value_of
from rn50_advisor.advisor.store.run_bundle import make_bundle
from written_runs import written_run

ROOT = Path(__file__).resolve().parents[3]
JOB = """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(25):
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(float(sys.argv[1]))  # so different that other load of this machine leaves no doubt
"""
PUSH: dict[str, Any] = {
    "event_name": "push",
    "ref_name": "main",
    "token": "ghs_secret",
    "run_id": "1",
    "run_attempt": "1",
    "event": {"repository": {"default_branch": "main"}},
}
PULL = {**PUSH, "event_name": "pull_request", "ref_name": "5/merge", "run_id": "2"}


def runner_in(place: Path, api: str, event: dict[str, Any] | None = None) -> Runner:
    (place / "bin").mkdir(parents=True, exist_ok=True)
    program = place / "bin" / "rn50-advisor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rn50_advisor.advisor.cli "$@"\n')
    program.chmod(0o755)
    (place / "event.json").write_text(json.dumps(event or {}))
    own = environment(
        PATH=f"{place / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        GITHUB_ACTIONS="true",
        GITHUB_API_URL=api,
        GITHUB_REPOSITORY="o/r",
        GITHUB_EVENT_PATH=str(place / "event.json"),
    )
    runner = Runner(ROOT / "action.yml", place, own)
    (runner.workspace / ".git").mkdir(exist_ok=True)
    (runner.workspace / "train.py").write_text(JOB)
    return runner


def ran(place: Path, api: str, github: dict[str, Any], command: str, event: dict[str, Any] | None = None) -> Ran:
    inputs = {"max_regression": "5", "install": "false", "name": "toy"}
    return runner_in(place, api, event).run(github, run=command, **inputs)


@pytest.mark.torch
def test_a_slower_pull_request_fails_with_one_comment_that_the_next_push_updates(tmp_path: Path) -> None:
    with forge() as service:
        main = ran(tmp_path, service.url, PUSH, "env | sort >seen; pwd >>seen; python train.py 0.005")
        assert main.failed == [] and main.outcomes["actions/cache/save"] == "success", main.log
        assert service.asked == [] and main.outputs["change"] == "" and main.outputs["verdict"], main.log

        seen = (tmp_path / "workspace/seen").read_text()
        assert seen.endswith("/workspace\n") and "RN50_CI_" not in seen and "ghs_secret" not in seen

        pull = {"pull_request": {"number": 5}}
        slower = ran(tmp_path, service.url, PULL, "python train.py 0.1", pull)
        assert slower.failed == ["judge"] and slower.outcomes["actions/upload-artifact"] == "success", slower.log
        assert slower.outcomes["keep"] == "skipped", "a pull request is no base"
        assert slower.outputs["change"] == "regressed" and float(slower.outputs["speed"]) < 0.3
        assert "::error title=Training became slower::" in slower.log and "regressed" in slower.summary
        kept = {path.name for path in (tmp_path / "artifacts/rn50-advisor-toy").iterdir()}
        assert {"report.html", "comparison.html", "run.tar.gz"} <= kept
        assert service.texts[0].startswith("<!-- rn50-advisor ci: toy -->\n\n### ▼ regressed: this change against base")

        died = ran(tmp_path, service.url, {**PULL, "run_id": "3"}, "echo no data >&2; exit 7", pull)
        assert died.failed == ["record", "judge"], died.log
        assert len(service.texts) == 1 and "not comparable" in service.texts[0], "the next push updates the comment"
        assert set(service.tokens) == {"Bearer ghs_secret"} and "ghs_secret" not in slower.log + slower.summary
    stored = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert not [path for path in stored if b"ghs_secret" in path.read_bytes()]


def test_a_base_of_ones_own_needs_no_cache_and_is_no_base_of_others(tmp_path: Path) -> None:
    runner = runner_in(tmp_path, "")
    (runner.workspace / "change").mkdir()
    (runner.workspace / "main").mkdir()
    make_bundle(written_run(tmp_path / "run"), runner.workspace / "main/run.tar.gz")
    inputs = {"base": "main/run.tar.gz", "working_directory": "change", "install": "false", "comment": "false"}
    made = runner.run(PUSH, run="pwd", **inputs)
    assert made.failed == [] and str(runner.workspace / "change") in made.log, made.log
    assert made.outputs["change"] == "unknown", "no step was recorded"
    assert made.outcomes["actions/cache/restore"] == made.outcomes["actions/cache/save"] == "skipped"


@pytest.mark.parametrize("name", ["$(touch hit)", "a b", "../x", "", "x" * 70])
def test_a_name_that_is_none_ends_before_anything_is_done(name: str, tmp_path: Path) -> None:
    made = runner_in(tmp_path, "").run(PULL, run="touch hit", name=name, install="false")
    assert made.failed == ["prepare"] and made.outcomes["record"] == made.outcomes["judge"] == "skipped"
    assert not (tmp_path / "workspace/hit").exists() and "letters, digits" in made.log


def test_a_folder_that_the_action_did_not_make_is_left_alone(tmp_path: Path) -> None:
    runner = runner_in(tmp_path, "")
    own = runner.workspace / "rn50-advisor-ci/training"
    own.mkdir(parents=True)
    (own / "notes").write_text("mine")
    made = runner.run(PULL, run="exit 0", install="false")
    assert made.failed == ["prepare"] and made.outcomes["record"] == "skipped"
    assert (own / "notes").read_text() == "mine" and "choose another name" in made.log
    (own / ".rn50-advisor").touch()
    assert runner.run(PULL, run="exit 0", install="false").outcomes["prepare"] == "success"
    assert not (own / "notes").exists()


def test_the_advisor_is_installed_beside_the_jobs_environment(tmp_path: Path) -> None:
    runner = runner_in(tmp_path, "")
    python = tmp_path / "bin" / "some-python"  # stands for venv and pip, and notes how it is called
    python.write_text(
        f"""#!/bin/sh
        echo "$@" >>{tmp_path}/called
        if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; ln -s /bin/true "$3/bin/rn50-advisor"; fi
        """
    )
    python.chmod(0o755)
    made = runner.run(PULL, run="exit 0", python=str(python), comment="false")
    assert made.outcomes["prepare"] == made.outcomes["record"] == "success", made.log
    environment_made, installed = (tmp_path / "called").read_text().splitlines()
    assert environment_made.startswith(f"-m venv {tmp_path}/temp/rn50-advisor.")
    assert installed == f"-m pip install --quiet --disable-pip-version-check {ROOT}"


def test_the_action_is_what_the_metadata_syntax_allows() -> None:
    document = yaml.safe_load((ROOT / "action.yml").read_text())
    assert set(document) <= {"name", "author", "description", "branding", "inputs", "outputs", "runs"}
    assert all(set(about) <= {"description", "required", "default"} for about in document["inputs"].values())
    assert all(set(about) == {"description", "value"} for about in document["outputs"].values())
    assert document["runs"]["using"] == "composite"
    for step in document["runs"]["steps"]:
        assert ("uses" in step) != ("run" in step and step["shell"] == "bash")
        assert set(step) <= {"id", "if", "uses", "with", "run", "shell", "env", "working-directory"}
        assert "${{" not in step.get("run", ""), "an input in a script is part of the script"
        assert all(isinstance(value, str) for value in step.get("env", {}).values())


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("inputs.base == ''", True),
        ("!cancelled() && steps.a.outcome != 'skipped'", True),
        ("startsWith(github.event_name, 'pull_request') || steps.none.outcome == 'x'", False),
        ("github.event.repository.default_branch", "main"),
    ],
)
def test_the_stand_in_for_the_runner_reads_expressions(expression: str, value: object) -> None:
    steps = {"a": {"outcome": "success", "outputs": {}}}
    context = {"inputs": {"base": ""}, "steps": steps, "github": PUSH, "failed": False}
    assert value_of(expression, context) == value
