"""What limits a run, and the evidence and fix of a finding, as an agent reads them; on the run that `demo` shows."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from report_samples import hostile, many_ranks
from rn50_advisor.advisor.commands.agents.read_tools import read_tools
from rn50_advisor.advisor.commands.agents.tool_calls import TEXT_CHARS, ToolAnswer, bounded, call
from rn50_advisor.advisor.commands.agents.verdict_tools import Shelf, verdict_document, verdict_words
from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.merge.job_reading import read_job
from rn50_advisor.advisor.report import phrases
from rn50_advisor.advisor.verdict.diagnose import diagnose
from written_runs import written_run


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-first", steps=60)
    written_run(tmp_path / "runs" / "20250102-000000-second", steps=80)
    return Shelf(tmp_path / "runs")


def asked(shelf: Shelf, name: str, **arguments: Any) -> ToolAnswer:
    return call({tool.name: tool for tool in read_tools(shelf)}[name], arguments, Event())


def document(answer: ToolAnswer) -> dict[str, Any]:
    assert answer.document is not None and not answer.failed, answer.text
    return answer.document


def gain() -> str:
    """What the run that `demo` shows would gain by its verdict, "1.4× faster": its number follows the errors of all predictions."""
    report = diagnose(read_job(RUN))
    saving = next(found.saving for found in report.findings if found.rule == report.verdict.rule)
    return phrases.gain(saving).removeprefix("about ").partition(" (")[0]


@pytest.mark.parametrize(
    ("run", "steps"), [(None, 80), ("first", 60), ("20250101", 60), ("runs/20250101-000000-first", 60)]
)
def test_a_run_is_the_one_that_report_would_show(shelf: Shelf, run: str | None, steps: int) -> None:
    assert document(asked(shelf, "verdict", run=run))["step_time"]["steps"] == steps


def test_a_verdict_is_short_and_names_what_it_leaves_out(shelf: Shelf) -> None:
    answer = asked(shelf, "verdict", run=str(RUN))
    made = document(answer)
    assert made["verdict"]["rule"] == "DAT003" and made["run"]["name"] == RUN.name
    assert {"timeline", "facts", "environment"} <= set(made["left_out"])
    assert all("evidence" not in each and each["saving"] for each in made["findings"])
    assert len(json.dumps(made)) < 8_000
    assert answer.text.startswith(
        "Bottleneck: Data loading: batches made in the training process (DAT003). Input wait: 36 %"
    )
    for words in (
        "Fix: num_workers=0 → 1",
        gain().partition(" ")[0],
        "pass --workers 1",
        "Too few compute threads",
        "40.1 samples/s",
    ):
        assert answer.text.count(words) == 1, words


def test_the_whole_report_is_given_where_it_is_asked_for(shelf: Shelf) -> None:
    made = document(asked(shelf, "verdict", run=str(RUN), full=True))
    assert made["schema"] == "rn50-advisor/report/1" and made["timeline"] and made["findings"][0]["fixes"]


def test_a_finding_has_evidence_place_fix_gain_and_limits(shelf: Shelf) -> None:
    answer = asked(shelf, "finding", run=str(RUN))
    made = document(answer)
    (finding,) = made["findings"]
    assert made["rule"] == "DAT003" and finding["evidence"] and finding["saving"]["likely"] > 1.2
    assert finding["fixes"][0]["where"] == {"file": "/home/user/resnet50/train.py", "line": 111}
    assert "diff" in finding["fixes"][0]
    assert made["limits"]["false_alarms"].startswith("tiny in-memory data") and made["limits"]["steps"] == 45
    for words in ("input wait: 356 ms", "train.py:111: num_workers=0 → 1", gain()):
        assert words in answer.text


def test_a_rule_that_found_nothing_says_so(shelf: Shelf) -> None:
    answer = asked(shelf, "finding", run=str(RUN), rule="GPU001")
    made = document(answer)
    assert made["findings"] == [] and made["outcome"]["state"] == "not_measured"
    assert "could not look" in answer.text and "This run has findings of DAT003" in answer.text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"run": "thrid"}, "rn50-advisor runs lists them"),
        ({"run": str(RUN), "rule": "DAT03"}, "did you mean DAT003?"),
        ({"run": "first"}, "the verdict names no rule"),
    ],
)
def test_what_is_not_there_is_an_error_with_what_to_do(shelf: Shelf, arguments: dict[str, str], words: str) -> None:
    answer = asked(shelf, "finding", **arguments)
    assert answer.failed and words in answer.text


def test_of_many_ranks_the_striking_ones_are_told() -> None:
    made = verdict_document(many_ranks(512, slow=41), Path("runs/many"))
    assert len(made["budget"]["per_rank"]) <= 16 and "41" in made["budget"]["per_rank"]
    assert bounded(made) == made, "nothing else has to be cut"


def test_text_of_the_job_is_one_harmless_paragraph() -> None:
    words = verdict_words(hostile())
    assert words.isprintable() and len(words) <= TEXT_CHARS
