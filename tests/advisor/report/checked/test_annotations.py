"""Annotations of findings, and what no text of a job can make of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from noisy_runs import noisy_run
from report_samples import CHECKPOINT, HOSTILE, LOADER, bottleneck
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report.checked.annotations import SHOWN, annotate, code_quality, workflow_commands
from rn50_advisor.advisor.run_comparison import compare


def here(where: Where) -> Where:
    return where


def nowhere(_: Where) -> None:
    return None


def with_findings(*rules: str, title: str = "t") -> Report:
    findings = tuple(replace(LOADER, rule=rule, title=title, explains=()) for rule in rules)
    return replace(bottleneck(), findings=findings)


def test_each_root_finding_is_one_annotation_at_its_line() -> None:
    made = annotate(bottleneck(), None, here)
    assert [(one.rule, one.level, one.where) for one in made] == [
        ("DAT003", "warning", Where("samples/train.py", 142)),
        ("LOP001", "notice", Where("samples/train.py", 231)),
    ]
    loader = made[0].text.split("\n")
    assert loader[0] == "70 % of the steady step, on the critical path; DataLoader at samples/train.py:142"
    assert loader[1:] == ["fix: load in worker processes: num_workers=6", loader[2]] and loader[2].startswith(
        "gain: about 2.5×"
    )


def test_a_place_outside_the_repository_is_no_line_and_nothing_for_gitlab() -> None:
    made = annotate(bottleneck(), None, nowhere)
    assert [one.where for one in made] == [None, None] and code_quality(made) == []
    assert all(not line.partition("::")[2].startswith("file=") for line in workflow_commands(made))


def test_the_commands_are_githubs_with_its_escapes() -> None:
    report = replace(bottleneck(), findings=(replace(CHECKPOINT, title="50 % of it: a, b"),))
    (line,) = workflow_commands(annotate(report, None, here))
    assert line.startswith("::notice file=samples/train.py,line=231,title=50 %25 of it%3A a%2C b (LOP001)::")
    assert "%0Afix: save every 500 steps" in line


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_job_ends_its_command_or_starts_another(text: str) -> None:
    finding = replace(
        LOADER, title=f"{text}::stop\n::error::x", fixes=(replace(LOADER.fixes[0], title=text, where=Where(text, 1)),)
    )
    lines = workflow_commands(annotate(replace(bottleneck(), findings=(finding,)), None, here))
    for line in lines:
        assert line.isprintable() and line.startswith("::warning ") and len(line) < 20_000
        keys = [part.partition("=")[0] for part in line.removeprefix("::warning ").partition("::")[0].split(",")]
        assert keys == ["file", "line", "title"]


def test_github_gets_no_more_than_it_takes_of_each_level() -> None:
    report = with_findings(*(f"DAT{n:03}" for n in range(SHOWN + 5)))
    assert len(workflow_commands(annotate(report, None, here))) == SHOWN


def test_a_run_that_is_slower_than_allowed_is_an_error() -> None:
    runs = noisy_run("base", 1), noisy_run("this change", 2, scale=1.4)
    slower, allowed = compare(runs, max_regression=0.05), compare(runs, max_regression=0.9)
    first = annotate(bottleneck(), slower, here)[0]
    assert (
        first.level == "error" and "this change against base: 0.7" in first.text and "by more than 5.0 %" in first.text
    )
    assert all(one.level != "error" for one in annotate(bottleneck(), allowed, here))
    assert [one["check_name"] for one in code_quality(annotate(bottleneck(), slower, here))] == ["DAT003", "LOP001"]


def test_gitlabs_report_has_what_it_needs_and_knows_a_finding_again() -> None:
    made = code_quality(annotate(bottleneck(), None, here))
    assert json.loads(json.dumps(made)) == made
    assert [(one["check_name"], one["severity"], one["location"]) for one in made] == [
        ("DAT003", "critical", {"path": "samples/train.py", "lines": {"begin": 142}}),
        ("LOP001", "info", {"path": "samples/train.py", "lines": {"begin": 231}}),
    ]
    assert "\n" not in made[0]["description"] and len({one["fingerprint"] for one in made}) == 2
    moved = code_quality(annotate(bottleneck(), None, lambda where: Where(where.file, where.line + 7)))
    assert [one["fingerprint"] for one in moved] == [one["fingerprint"] for one in made]
    fatal = replace(bottleneck(), findings=(replace(LOADER, fatal=True),))
    assert code_quality(annotate(fatal, None, here))[0]["severity"] == "blocker"
