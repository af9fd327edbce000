"""`watch()` in a process that trains: what it records, and what it leaves as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import rn50_advisor
from cli_process import advisor, environment
from rn50_advisor.advisor.commands.notebooks import watching
from rn50_advisor.advisor.commands.notebooks.keeper_handle import NoKeeper
from rn50_advisor.advisor.commands.notebooks.recording_keeper import UNSEEN
from rn50_advisor.advisor.model.errors import NotARun
from written_runs import written_run

SCRIPT = Path(__file__).with_name("training_inside.py")


def marked(folder: Path) -> list[list[str]]:
    """Live processes that inherited this test's variable."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("MARKED_FOR_A_TEST") == str(folder):
                found.append(process.cmdline())
        except psutil.Error:
            continue
    return found


@pytest.mark.torch
def test_a_process_records_its_own_training(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        cwd=tmp_path,
        env=environment(MARKED_FOR_A_TEST=str(tmp_path)),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["losses"] == 1  # before, within and after
    assert found["unchanged"] and found["kept to itself"] and found["rings are gone"]
    assert (found["steps"], found["ranks"]) == (40, 1)
    assert UNSEEN.metric in found["gaps"]
    assert "first" in found["text"] and "<iframe" in found["html"]
    assert "recorded already" in found["inner"]
    assert found["raised"] == ["no such layer", True]  # no frame of ours in the traceback
    state, steps, text = found["failed"]
    assert (state, steps) == ("failed", 20) and "raised by rank 0" in " ".join(text.split())
    assert found["orphan's losses"] and "unknown" in found["orphan"]
    first, second, short, *_ = sorted((tmp_path / "runs").iterdir())
    told = [line for line in done.stderr.splitlines() if not line.startswith("rn50-advisor: watch() does nothing")]
    assert told[:-1] == [
        f"rn50-advisor: recorded: rn50-advisor report runs/{run.name}" for run in (first, second, short)
    ]
    assert told[-1].startswith("rn50-advisor: the recording's end is unknown") and found["short"] == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.json", "runs"]
    # the command line reads the same
    shown = advisor("report", str(first), "--format", "json", cwd=tmp_path)
    of_script = json.loads((tmp_path / "report.json").read_text())
    assert json.loads(shown.stdout)["step_time"] == of_script["step_time"]
    assert of_script["job"]["argv"][-1] == str(SCRIPT)
    assert marked(tmp_path) == []


def no_keeper(*_: Any, **__: Any) -> None:
    raise NoKeeper("no room")


def test_what_cannot_be_recorded_runs_as_it_would_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "RunKeeper", no_keeper)
    monkeypatch.delenv("RN50_ADVISOR_DIR", raising=False)

    @rn50_advisor.watch(name="decorated")
    def training() -> int:
        return 5

    assert [training(), training()] == [5, 5]
    with pytest.raises(KeyError), rn50_advisor.watch() as watched:
        raise KeyError("theirs")
    lines = capfd.readouterr().err.splitlines()
    assert lines == ["rn50-advisor: nothing is recorded: NoKeeper: no room"] * 3
    assert "no room" in str(watched) and "no room" in watched._repr_html_()
    with pytest.raises(NotARun, match="no room"):
        _ = watched.report


@pytest.mark.parametrize(
    ("variables", "said"),
    [({"RN50_ADVISOR_DIR": "/dev/shm/x"}, "recorded already"), ({"RANK": "3", "WORLD_SIZE": "8"}, "rank 3 of 8")],
)
def test_a_recorded_process_and_all_but_one_rank_do_nothing_but_say_so(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variables: dict[str, str], said: str
) -> None:
    monkeypatch.setattr(watching, "RunKeeper", no_keeper)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with rn50_advisor.watch() as watched:
        pass
    (line,) = capfd.readouterr().err.splitlines()
    assert said in line and watched.run is None


def test_a_run_of_the_command_line_is_shown_in_a_notebook(tmp_path: Path) -> None:
    written_run(tmp_path / "20250101-000000-first", name="<script>alert(1)</script>", steps=60)
    shown = rn50_advisor.open_run(run_dir=tmp_path)
    html = shown._repr_html_()
    assert html.count("<") == 2 and 'sandbox="allow-scripts' in html  # one frame, and nothing outside it
    assert "&lt;!DOCTYPE html&gt;" in html
    assert str(shown).startswith("rn50-advisor report")
    saved = shown.save(tmp_path / "page.html").read_text()
    assert saved.startswith("<!DOCTYPE html>") and "<script>alert(1)" not in saved


def test_importing_the_package_loads_next_to_nothing() -> None:
    code = "import sys; known = set(sys.modules); import rn50_advisor; print(sorted(set(sys.modules) - known))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True)
    assert done.stdout.strip() in ("['rn50_advisor']", "['__future__', 'rn50_advisor']")
