"""The job template for GitLab: its script, and a stand-in for GitLab's API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from change_services import forge
from cli_process import environment

ROOT = Path(__file__).resolve().parents[3]
TEMPLATE = yaml.safe_load((ROOT / "integrations/gitlab/rn50-advisor.gitlab-ci.yml").read_text())[".rn50-advisor"]


def ran(place: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs the template's script in a checkout, with the shell that any image has."""
    checkout = place / "checkout"
    checkout.mkdir(exist_ok=True)
    program = place / "rn50-advisor"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m rn50_advisor.advisor.cli "$@"\n')
    program.chmod(0o755)
    own = environment(
        PATH=f"{place}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        GITLAB_CI="true",
        CI_PROJECT_ID="1",
        CI_PROJECT_DIR=str(checkout),
        CI_JOB_URL="https://forge/o/r/-/jobs/3",
        CI_DEFAULT_BRANCH="main",
        **{**TEMPLATE["variables"], **variables},
    )
    return subprocess.run(
        ["sh", "-e"],
        input="\n".join(TEMPLATE["script"]),
        cwd=checkout,
        env=own,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_main_keeps_its_run_and_a_merge_request_gets_one_note_and_the_jobs_exit_code(tmp_path: Path) -> None:
    files, base = (tmp_path / "checkout/rn50-advisor-ci" / name for name in ("files", "base/run.tar.gz"))
    main = ran(tmp_path, RN50_CI_COMMAND="echo training", CI_COMMIT_BRANCH="main")
    assert main.returncode == 0 and base.is_file(), main.stderr
    kept = base.read_bytes()
    assert isinstance(json.loads((files / "gl-code-quality-report.json").read_text()), list)
    with forge() as service:
        change = {"CI_MERGE_REQUEST_IID": "5", "CI_API_V4_URL": service.url, "GITLAB_TOKEN": "glpat-secret"}
        for _ in range(2):
            died = ran(
                tmp_path, RN50_CI_COMMAND="echo hi ${GITLAB_TOKEN-none}; exit 7", RN50_CI_MAX_REGRESSION="5", **change
            )
            assert died.returncode == 7, "the job's own exit code, not that of the comparison"
        assert len(service.texts) == 1 and "/-/jobs/3/artifacts/browse/rn50-advisor-ci/files" in service.texts[0]
        assert "hi none" in died.stdout and "glpat-secret" not in died.stdout + died.stderr
    assert base.read_bytes() == kept, "only the default branch is a base"


def test_the_template_names_the_files_that_the_command_writes() -> None:
    folder = TEMPLATE["artifacts"]["paths"][0]
    assert TEMPLATE["artifacts"]["reports"]["codequality"] == f"{folder}gl-code-quality-report.json"
    assert f"--files {folder.rstrip('/')}" in TEMPLATE["script"][0]
    assert TEMPLATE["cache"]["paths"][0].rstrip("/") in TEMPLATE["script"][0] and TEMPLATE["cache"]["unprotect"]
    assert set(TEMPLATE) <= {"variables", "rules", "cache", "script", "artifacts"}
