"""Wording that all reports share."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

import report_samples as samples
import trial_samples
from hostile_text import DANGEROUS
from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.report import Budget, Capacity
from rn50_advisor.advisor.report import html, markdown, phrases, render, text, text_page


def test_what_the_advisor_costs_in_workers_is_shown_where_it_is_known() -> None:
    costs = dict(phrases.overhead(samples.bottleneck()))
    assert costs["in loader workers"] == "1.4 % of their time"
    assert "in loader workers" not in dict(phrases.overhead(samples.healthy()))


def test_a_bar_shows_each_stage_beside_the_fastest() -> None:
    report = samples.bottleneck()
    bars = {c.stage: phrases.capacity_bar(report, c) for c in report.capacities}
    assert (bars["communication"], bars["loader"]) == ("█" * phrases.BAR_CELLS, "")
    assert bars["storage"] == "███▉"  # 2310 of 7100 samples/s on twelve cells
    assert re.search(r"storage {18}███▉ {10}2,310 samples/s", render(report, "text"))


@pytest.mark.parametrize(("rate", "bar"), [(None, ""), (0.0, ""), (math.nan, ""), (1e-9, "▏"), (math.inf, "█" * 12)])
def test_a_bar_is_drawn_of_any_rate(rate: float | None, bar: str) -> None:
    stages = (Capacity("compute", rate, None, None, ""), Capacity("storage", 100.0, None, None, ""))
    assert phrases.capacity_bar(replace(samples.healthy(), capacities=stages), stages[0]) == bar


@pytest.mark.parametrize(
    ("change", "typed", "code", "words"),
    [
        (
            "f(n=6)\npass --workers 6 instead of --workers 0",
            ("--workers 6",),
            "f(n=6)",
            "Pass --workers 6 instead of --workers 0",
        ),
        ("set WORKERS=6", ("WORKERS=6",), "", "Set WORKERS=6"),
        ("f(n=6)\npass --workers 6", (), "f(n=6)\npass --workers 6", ""),
        ("f(n=6)", ("--workers 6",), "f(n=6)", ""),
        ("", ("A=1", "B=2"), "", ""),
    ],
)
def test_an_option_is_shown_once_beside_the_code(change: str, typed: tuple[str, ...], code: str, words: str) -> None:
    assert phrases.fix_code(Fix("More workers", change=change, typed=typed)) == (code, words)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"running": True, "exit_code": None}, "still running after 4m 12s"),
        ({"exit_code": 3}, "exit code 3"),
        ({"exit_code": None, "exit_signal": "SIGKILL"}, "killed by SIGKILL"),
        ({"exit_code": -11}, "killed by SIGSEGV"),
        ({"exit_code": None}, "end not observed"),
        ({"exit_code": None, "traced": True}, "4m 12s of a profiler's trace"),
    ],
)
def test_how_the_job_ended_is_said(change: dict[str, object], said: str) -> None:
    report = samples.bottleneck()
    report = replace(report, job=replace(report.job, **change))  # type: ignore[arg-type]
    assert said in render(report, "text") and said in text.summary(report)


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (
            Evidence("step.input_wait_s", 0.412, "s", 0.03, "on rank 0"),
            "input wait: 412 ms on rank 0; threshold 30.0 ms",
        ),
        (Evidence("loader.workers", 0.0, "workers", 1.0, ""), "loader workers: 0 (threshold 1)"),
        (Evidence("gpu.idle_after_waits_s", 0.018, "s", 0.00228), "GPU idle after waits: 18.0 ms (threshold 2.28 ms)"),
        (Evidence("fetch.cpu_share", 0.9, "share"), "batch preparation CPU time: 90 %"),
        (Evidence("signal", "SIGKILL"), "signal: SIGKILL"),
        (Evidence("cpu.steal_pct", None, "%"), "CPU steal: –"),
    ],
)
def test_evidence_is_said_with_its_unit_once(item: Evidence, said: str) -> None:
    assert phrases.evidence(item) == said


@pytest.mark.parametrize("moment", [None, "soon", -1.0, float("nan"), 1e300])
def test_a_start_that_is_no_time_is_left_out(moment: object) -> None:
    assert phrases.started(replace(samples.healthy(), environment={"started": moment})) == ""


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_the_start_is_shown_in_one_zone_for_all_readers(format: str) -> None:
    assert "2025-01-31 12:00:00 UTC" in render(samples.bottleneck(), format)


@pytest.mark.parametrize(
    ("render", "words"),
    [
        (text.summary, "1.54 J per sample, 512 W on its GPUs"),
        (text.render, "1.54 J per sample, 512 W on its GPUs"),
        (markdown.render, "1.54 J per sample, 512 W on its GPUs"),
        (html.render, "joules per sample"),
    ],
)
def test_each_format_shows_the_energy(render, words) -> None:
    assert words in render(samples.with_energy())
    assert "J per sample" not in render(samples.healthy()) and "joules per sample" not in render(samples.healthy())


def test_it_is_in_the_json_and_older_reports_are_read_without() -> None:
    document = samples.with_energy().as_json()
    assert from_json(document).throughput == samples.with_energy().throughput
    del document["throughput"]["watts"], document["throughput"]["joules_per_sample"]
    assert from_json(document).throughput.joules_per_sample is None


def test_what_asking_the_driver_cost_is_shown_where_there_is_one() -> None:
    report = samples.healthy()
    asked = replace(report, overhead=replace(report.overhead, driver_share=0.004))
    for module in (text, markdown, html):
        assert "GPU driver queries" in module.render(asked) and "GPU driver queries" not in module.render(report)


def related(rule: str, by: str | None = None) -> Finding:
    return replace(samples.LOADER, rule=rule, explained_by=by)


def test_a_finding_stands_under_its_cause_directly_or_through_another() -> None:
    found = (related("A"), related("B", "A"), related("C", "B"), related("D", "absent"), related("E"))
    report = replace(samples.bottleneck(), findings=found)
    assert [f.rule for f in phrases.root_findings(report)] == ["A", "D", "E"]
    assert [f.rule for f in phrases.explained_findings(report, found[0])] == ["B", "C"]
    assert phrases.explained_findings(report, found[4]) == []


def test_findings_that_explain_each_other_end_the_search() -> None:
    found = (related("A", "B"), related("B", "A"))
    report = replace(samples.bottleneck(), findings=found)
    assert phrases.root_findings(report) == []
    assert [f.rule for f in phrases.explained_findings(report, found[0])] == ["B"]


@pytest.mark.parametrize(
    ("affected", "said"),
    [
        (Affected(), ""),
        (Affected(ranks=(1,)), "rank 1"),
        (Affected(ranks=(2, 0, 1, 5), gpus=(0,)), "ranks 0–2, 5, GPU 0"),
        (Affected(hosts=("a",), since_step=4000), "host a, since step 4,000"),
        (Affected(hosts=("a", "b")), "hosts a, b"),
        (Affected(since_step=0), "since step 0"),
    ],
)
def test_whom_a_finding_is_about(affected: Affected, said: str) -> None:
    assert phrases.scope(affected) == said


def test_nothing_is_said_of_a_gain_that_nobody_predicted() -> None:
    assert phrases.gain(None) == ""


def test_of_many_ranks_those_of_findings_then_the_slowest_are_shown_in_order() -> None:
    report = samples.many_ranks(64, slow=41)
    assert phrases.ranks_shown(report, 3) == [0, 1, 41]
    assert phrases.ranks_shown(replace(report, findings=()), 64) == list(range(64))


def test_unknown_phases_stand_last_and_the_unattributed_always() -> None:
    assert phrases.phases_present(Budget({"own": 0.1, "forward": 0.2}, {0: {"gap": 0.1, "backward": 0.0}})) == [
        *("forward", "gap", "unattributed", "own"),
    ]
    assert phrases.phase("input_wait") == "waiting for input" and phrases.phase("own") == "own"


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_a_finding_says_what_was_measured_of_its_fix(format: str) -> None:
    told = {
        "text": "measured by try: ",
        "md": "**Measured by try:** ",
        "html": '<span class="quiet">Measured by try:</span> ',
    }
    words = f"{told[format]}1.52× (1.49–1.56×)"
    report = replace(samples.bottleneck(), tried=trial_samples.several())
    assert render(report, format).count(words) == 1
    assert "easured by try" not in render(samples.bottleneck(), format)
    assert format != "text" or f"           {words}" in text_page.render(report)


def test_the_trials_are_no_part_of_the_reports_contract() -> None:
    report = replace(samples.bottleneck(), tried=trial_samples.several())
    assert render(report, "json") == render(samples.bottleneck(), "json")


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_nothing_of_a_strangers_trials_acts(format: str) -> None:
    trials = tuple(replace(trial_samples.WORKERS, title=bad, reason=bad) for bad in samples.HOSTILE)
    shown = render(replace(samples.bottleneck(), tried=replace(trial_samples.several(), trials=trials)), format)
    assert "easured by try" in shown and not DANGEROUS.search(shown)
    assert format == "text" or ("<script>alert" not in shown and "<img src" not in shown)


def test_paths_lose_the_jobs_folder_alone() -> None:
    report = replace(samples.empty(), environment={"cwd": "/app"})
    text = "/app/train.py:3 reads /mnt/app/data and /app2/x"
    assert phrases.from_its_folder(report, text) == "train.py:3 reads /mnt/app/data and /app2/x"
