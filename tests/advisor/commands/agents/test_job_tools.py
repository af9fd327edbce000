"""`run` and `try` for agents: one job at a time, arguments that cannot become options, and answers where there is no verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rn50_advisor.advisor.commands.agents import job_tools
from rn50_advisor.advisor.commands.agents.agent_jobs import Ending
from rn50_advisor.advisor.commands.agents.job_tools import JobDesk
from rn50_advisor.advisor.commands.agents.tool_calls import ToolAnswer, call
from rn50_advisor.advisor.commands.agents.verdict_tools import Shelf
from rn50_advisor.advisor.model.trials import MeasuredSpeedup, Trial, Tried
from written_runs import written_run

SECRET = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3"


class PlayedJob:
    """Stands for a job that ends as it is told, and writes what the command line would write."""

    ending, output, writes = Ending(0), "", ""
    started: Sequence[str] = ()
    pid, runs_on = 4711, False

    def __init__(self, arguments: Sequence[str], *, folder: Path, output: Path) -> None:
        type(self).started = arguments
        file = next((word.partition("=")[2] for word in arguments if word.startswith(("--report=", "--output="))), "")
        if self.writes:
            Path(file).write_text(self.writes)

    def wait(self, limit_s: float, stop: Event) -> Ending:
        return self.ending

    def tail(self) -> str:
        return self.output

    def running(self) -> bool:
        return self.runs_on

    def interrupt(self) -> None:
        type(self).ending = Ending(-2)


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[PlayedJob]:
    class Played(PlayedJob):
        pass

    monkeypatch.setattr(job_tools, "AgentJob", Played)
    monkeypatch.chdir(tmp_path)
    return Played


def asked(desk: JobDesk, tool: str, /, **arguments: Any) -> ToolAnswer:
    return call({each.name: each for each in desk.tools()}[tool], arguments, Event())


def test_both_are_marked_as_running_jobs(tmp_path: Path) -> None:
    assert [(tool.name, tool.runs_jobs) for tool in JobDesk(Shelf(tmp_path)).tools()] == [("run", True), ("try", True)]


def test_a_recorded_job_gets_the_verdict_of_its_own_run(played: type[PlayedJob], tmp_path: Path) -> None:
    written_run(tmp_path / "runs" / "20250101-000000-mine", steps=60, started_unix_s=1.7e9)
    written_run(tmp_path / "runs" / "20250102-000000-others", steps=80, started_unix_s=1.8e9)
    played.writes, played.output = json.dumps({"environment": {"started": 1.7e9}}), "epoch 1"
    answer = asked(JobDesk(Shelf(Path("runs"))), "run", command="python 'my train.py' --lr 1", name="mine")
    assert answer.document is not None and answer.document["run"]["name"] == "20250101-000000-mine"
    assert (answer.document["exit_code"], answer.document["output"]) == (0, "epoch 1")
    assert answer.text.startswith("Recorded as 20250101-000000-mine. ")
    before, after = played.started[: played.started.index("--")], played.started[played.started.index("--") + 1 :]
    assert after == ["python", "my train.py", "--lr", "1"]
    assert {"run", "--no-tui", f"--run-dir={tmp_path / 'runs'}", "--name=mine"} <= set(before)


def test_a_job_that_was_stopped_says_so(played: type[PlayedJob], tmp_path: Path) -> None:
    written_run(tmp_path / "runs" / "20250101-000000-mine", steps=60)
    played.writes, played.ending = json.dumps({"environment": {"started": 1.7e9}}), Ending(-2, "time limit")
    answer = asked(JobDesk(Shelf(Path("runs"))), "run", command="python train.py", time_limit_s=60)
    assert "Stopped at the time limit of 60 s. " in answer.text and not answer.failed
    assert answer.document is not None and answer.document["stopped"] == "time limit"


def test_without_a_verdict_the_jobs_last_words_are_told(played: type[PlayedJob]) -> None:
    played.ending, played.output = Ending(127), "rn50-advisor: pyhton: command not found"
    answer = asked(JobDesk(Shelf(Path("runs"))), "run", command="pyhton train.py")
    assert answer.failed and "pyhton: command not found" in answer.text and "127" in answer.text
    assert answer.document == {"exit_code": 127, "stopped": None, "output": played.output}


def test_a_job_that_nothing_ends_is_told_with_its_number_and_no_other_is_started(played: type[PlayedJob]) -> None:
    played.ending, played.runs_on = Ending(None, "time limit"), True
    desk = JobDesk(Shelf(Path("runs")))
    answer = asked(desk, "run", command="python train.py")
    assert answer.failed and "4711" in answer.text
    assert "has not ended: process 4711" in asked(desk, "run", command="python train.py").text


def test_two_jobs_do_not_run_beside_each_other(played: type[PlayedJob], monkeypatch: pytest.MonkeyPatch) -> None:
    desk, inner = JobDesk(Shelf(Path("runs"))), []

    def wait(self: PlayedJob, limit_s: float, stop: Event) -> Ending:
        inner.append(asked(desk, "run", command="python train.py"))
        return Ending(1)

    monkeypatch.setattr(played, "wait", wait)
    asked(desk, "run", command="python train.py")
    assert [answer.text.partition(":")[0] for answer in inner] == ["another job is running"]
    monkeypatch.setattr(played, "wait", PlayedJob.wait)
    assert "another job" not in asked(desk, "run", command="python train.py").text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"command": "python 'train.py"}, "cannot be split"),
        ({"command": "  "}, "is empty"),
        ({"command": "python train.py", "folder": "nowhere"}, "nowhere is no folder"),
        ({"command": "python train.py", "time_limit_s": 1e9}, "wrong arguments"),
    ],
)
def test_what_cannot_be_started_is_said(played: type[PlayedJob], arguments: dict[str, Any], words: str) -> None:
    answer = asked(JobDesk(Shelf(Path("runs"))), "run", **arguments)
    assert answer.failed and words in answer.text and not played.started


def test_what_is_tried_is_a_run_and_never_an_option(played: type[PlayedJob], tmp_path: Path) -> None:
    desk = JobDesk(Shelf(Path("runs")))
    assert asked(desk, "try", command="python train.py", run="--allow-writes").failed and not played.started
    run = written_run(tmp_path / "runs" / "20250101-000000-mine", steps=60)
    asked(desk, "try", command="python train.py", run="mine", fixes=["DAT003", "--allow-writes"], budget_s=90)
    assert list(played.started[:2]) == ["try", str(run)]
    assert {"--budget=90s", "--fix=DAT003,--allow-writes"} <= set(played.started)
    assert "--allow-writes" not in played.started


def test_what_was_tried_is_told_with_its_gain_and_without_secrets(played: type[PlayedJob]) -> None:
    trial = Trial("DAT003", "Loading", "DataLoader.num_workers=2", "faster", measured=MeasuredSpeedup(1.5, 1.4, 1.6, 4))
    other = Trial("H2D001", "Copies", "DataLoader.pin_memory=True", "refused", "no GPU")
    tried = Tried((trial, other), ("python", "train.py", f"--token={SECRET}"), 40.0)
    played.writes = json.dumps(tried.as_json())
    answer = asked(JobDesk(Shelf(Path("runs"))), "try", command=f"python train.py --token={SECRET}")
    assert answer.text.startswith("1.50× as fast (1.40–1.60×) with DataLoader.num_workers=2 (DAT003). ")
    assert "H2D001 DataLoader.pin_memory=True: not tried" in answer.text and answer.text.count("(1.40–1.60×)") == 1
    assert answer.document is not None and answer.document["schema"] == "rn50-advisor/try/1"
    assert SECRET not in json.dumps(answer.document) and SECRET not in answer.text


def test_where_nothing_was_tried_the_reason_is_told(played: type[PlayedJob]) -> None:
    played.ending, played.output = Ending(77), "rn50-advisor: writes cannot be held back"
    answer = asked(JobDesk(Shelf(Path("runs"))), "try", command="python train.py")
    assert answer.failed and answer.text.startswith("nothing was tried: rn50-advisor: writes cannot be held back")
