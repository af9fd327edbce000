"""`run --notify` on real jobs: one line for a job that died, nothing that shows the address, and a job that no endpoint can harm."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from change_services import dead_url, forge, silent_url
from cli_process import advisor
from rn50_advisor.advisor.store.run_reader import read_recording

HOOK = "/repos/o/r/issues/5/comments/SECRETHOOK"
# A job that looks for the address where any user of the machine could, and then fails.
LOOKING = """
import pathlib
hook = "SECRET" + "HOOK"
for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
    try:
        print("shown by", process, process.read_bytes()) if hook.encode() in process.read_bytes() else None
    except OSError:
        pass
print("looked")
raise SystemExit(3)
"""


def gaps(runs: Path) -> list[str]:
    (run,) = runs.iterdir()
    return [gap.reason for gap in read_recording(run).gaps if gap.metric == "notify"]


def test_a_job_that_dies_is_posted_once_and_its_address_is_nowhere(tmp_path: Path) -> None:
    with forge(status=200) as service:
        options = ("--notify", f"{service.url}{HOOK}", "--name", "toy")
        done = advisor("run", *options, "--", sys.executable, "-c", LOOKING, cwd=tmp_path)
        (notice,) = service.sent
    assert done.returncode == 3 and done.stdout == b"looked\n", done.stdout
    assert notice["event"] == "died" and notice["name"] == "toy"
    assert "exit code 3" in notice["text"] or "failed" in notice["text"], notice
    assert notice["text"].endswith(f"rn50-advisor report {notice['folder']}") and Path(notice["folder"]).is_dir()
    kept = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert kept and not [path for path in kept if b"SECRETHOOK" in path.read_bytes()]
    assert gaps(tmp_path / "runs") == [] and b"SECRETHOOK" not in done.stderr


def test_a_job_that_ends_well_is_no_news(tmp_path: Path) -> None:
    with forge(status=200) as service:
        done = advisor("run", "--notify", f"{service.url}{HOOK}", "--", "true", cwd=tmp_path)
        assert done.returncode == 0 and service.sent == []


@pytest.mark.parametrize(("kind", "says"), [("dead", "Connection refused"), ("slow", "no answer ")])
def test_an_endpoint_that_takes_nothing_is_one_line_of_the_report_and_nothing_to_the_job(
    kind: str, says: str, tmp_path: Path
) -> None:
    with silent_url() as slow:
        url = slow if kind == "slow" else dead_url()
        variables = {"RN50_ADVISOR_NOTIFY": f"{url}{HOOK}"}
        # long enough for the process of the outlets to be there: within 4 s of the end it has to be refused for 2.5 s
        done = advisor("run", "--", "sh", "-c", "echo out; sleep 3; exit 3", cwd=tmp_path, env=variables)
    assert done.returncode == 3 and done.stdout == b"out\n"
    (reason,) = gaps(tmp_path / "runs")
    assert reason.startswith(f"{url}: {says}")  # how often depends on how soon its process was there


def test_what_is_no_address_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    done = advisor("run", "--notify", "hooks.slack.com/SECRETHOOK", "--", "touch", "started", cwd=tmp_path)
    assert done.returncode == 64 and b"SECRETHOOK" not in done.stderr and list(tmp_path.iterdir()) == []
