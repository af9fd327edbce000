"""The text report and the summary that ends a run."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.findings import Evidence, Fix, Where
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.report import Capacity
from rn50_advisor.advisor.report import format_of, render, text

SUMMARY = """\
▲ Bottleneck: Loading happens in the training process (DAT003)
why     70 % of the steady step, on the critical path; DataLoader at samples/train.py:142
fix     samples/train.py:142: load in worker processes: num_workers=6
gain    about 2.5× faster (2.1–2.9×), saves 310–380 ms per step
also    Checkpoints stop the training (LOP001)
speed   109 samples/s · 587 ms per step · 430 steps · 2 ranks · exit code 0 after 4m 12s
report  runs/x"""


def test_the_summary_says_verdict_why_fix_gain_speed_and_where() -> None:
    assert text.summary(samples.bottleneck(), "runs/x").split("\n", 1)[1] == SUMMARY


def test_the_summary_of_a_run_names_the_command_that_tries_its_fix() -> None:
    def tried(fix: Fix, run: str = "runs/x") -> list[str]:
        model = samples.bottleneck()
        finding = replace(model.findings[0], fixes=(fix,))
        shown = text.summary(replace(model, findings=(finding,)), "runs/x.html", run)
        return [line for line in shown.split("\n") if line.startswith("try it")]

    workers = Fix("num_workers=2", call=CallChange.of("DataLoader", num_workers=2))
    assert tried(workers) == ["try it  rn50-advisor try runs/x -- …"]
    assert tried(workers, run="") == []
    assert tried(Fix("load less")) == []


def test_paths_below_the_jobs_folder_are_as_one_types_them_there() -> None:
    model = samples.bottleneck()
    place = Where("/job/src/train.py", 142)
    evidence = Evidence("stack samples", 9.0, note="/job/src/train.py:142 in main")
    finding = replace(model.findings[0], fixes=(Fix("load less", where=place),), evidence=(evidence,))
    shown = text.summary(replace(model, findings=(finding,), environment={"cwd": "/job"})).split("\n")
    assert "why     at src/train.py:142 in main" in shown and "fix     src/train.py:142: load less" in shown
    assert "fix     /job/src/train.py:142: load less" in text.summary(
        replace(model, findings=(finding,), environment={})
    )


def test_a_second_piece_of_evidence_is_whole_or_not_there() -> None:
    model = samples.bottleneck()

    def why(*notes: str) -> str:
        evidence = tuple(Evidence("step.time_s", 1.0, "s", note=note) for note in notes)
        shown = text.summary(replace(model, findings=(replace(model.findings[0], evidence=evidence),)))
        return " ".join(shown.partition("why     ")[2].partition("\nfix ")[0].split())

    assert why("rank 1 waits", "rank 0 computes") == "rank 1 waits; rank 0 computes"
    assert why("rank 1 waits", "rank 0 " + "computes " * 40) == "rank 1 waits"
    assert why("rank 0 " + "computes " * 40, "rank 1 waits").endswith("computes…")


@pytest.mark.parametrize("name", samples.ALL)
def test_a_summary_fits_twelve_lines_of_a_hundred_columns(name: str) -> None:
    shown = text.summary(samples.ALL[name](), "runs/" + "long" * 50).split("\n")
    assert len(shown) <= 12
    assert max(map(len, shown)) <= 100


def test_a_summary_without_finding_uses_the_verdicts_own_words() -> None:
    shown = text.summary(samples.inconclusive())
    assert "? Inconclusive: Too few steps" in shown
    assert "2 steps were seen; 20 are needed." in shown
    assert "fix" not in shown and "gain" not in shown


def test_victims_stand_under_their_cause_and_not_beside_it() -> None:
    shown = render(samples.bottleneck(), "text")
    assert re.search(r"1\. critical DAT003.*explains  COM002.*2\. low LOP001", shown, re.S)
    assert "COM002" not in text.summary(samples.bottleneck())


def test_a_victim_whose_cause_is_absent_is_shown_on_its_own() -> None:
    report = replace(samples.bottleneck(), findings=(samples.STRAGGLER,))
    assert "1. medium COM002" in render(report, "text")


def test_findings_that_explain_each_other_are_all_shown_somewhere() -> None:
    a, b = replace(samples.LOADER, explained_by="COM002"), samples.STRAGGLER
    report = replace(samples.bottleneck(), findings=(a, b, samples.CHECKPOINT))
    assert render(report, "text").count("LOP001") >= 1  # and it ends


def test_the_budget_shows_every_phase_with_seconds_and_share_and_the_whole() -> None:
    shown = render(samples.bottleneck(), "text")
    assert re.search(r"waiting for input +412 ms +70 % +412 ms +70 % +431 ms +72 %", shown)
    assert re.search(r"unattributed +4.00 ms", shown)
    assert re.search(r"whole step +587 ms +587 ms +597 ms", shown)


def test_the_stage_of_the_verdict_is_the_bottleneck_and_unmeasured_ones_say_so() -> None:
    shown = render(samples.bottleneck(), "text")
    assert re.search(r"preprocessing +▎ +154 samples/s \(148–161\) +◀ bottleneck", shown)
    assert re.search(r"worker-to-loop transfer +not measured\n +no worker ran", shown)
    assert shown.count("◀") == 1


def test_the_stage_that_the_prediction_reaches_caps_the_gain() -> None:
    shown = render(samples.bottleneck(), "text")
    assert re.search(r"compute +▊ +424 samples/s \(410–440\) +◁ caps the gain", shown)
    assert shown.count("◁") == 1


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_no_format_marks_a_stage_if_the_verdict_is_about_none(format: str) -> None:
    report = samples.bottleneck()
    thread = replace(report, verdict=replace(report.verdict, rule="LOP006"))
    shown = render(thread, format)
    assert not re.search("[◀◁] (bottleneck|caps the gain)", shown) and "slowest stage" not in shown
    assert "◀ bottleneck" in render(report, format)
    healthy = render(samples.healthy(), format)
    assert "○ slowest stage" in healthy and "◀" not in healthy


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_every_format_shows_what_stages_of_one_process_make_together(format: str) -> None:
    shown = " ".join(render(samples.bottleneck(), format).replace("\\", "").split())
    assert "one after the other" in shown and "share the training process (num_workers=0): their times add up" in shown
    workers = replace(samples.bottleneck(), facts={"0": {"loaders": [{"training": True, "num_workers": 2}]}})
    assert "one after the other" not in render(workers, format)


def test_the_forecast_over_workers_is_one_line_with_the_measured_point_and_the_knee() -> None:
    shown = " ".join(render(samples.bottleneck(), "text").split())
    assert (
        "workers: 0 → 109 (measured), 1 → 140–160, 2 → 250–300, 3 → 330–390 (point of diminishing returns), 4 → 335–400, 8 →"
        in shown
    )
    assert "ANOTHER NUMBER" not in render(replace(samples.bottleneck(), worker_curve=None), "text")


def test_stages_of_unknown_rate_alone_name_no_bottleneck() -> None:
    report = replace(samples.bottleneck(), capacities=(Capacity("compute", None, None, None, "too few steps"),))
    assert "◀" not in render(report, "text")


def test_what_could_not_be_seen_is_said_with_its_hint() -> None:
    shown = render(samples.bottleneck(), "text")
    assert "CPU002  needs CPU steal" in shown
    assert "DAT002  the rule itself failed: ZeroDivisionError: division by zero" in shown
    assert "this kernel does not count stolen time (hint: run on the host to see it)" in shown


def test_of_many_ranks_those_named_and_the_slowest_are_shown_and_the_rest_counted() -> None:
    shown = render(samples.many_ranks(256), "text")
    assert "rank 0 " in shown and "rank 41" in shown and "rank 100" not in shown
    assert "240 more ranks are in the JSON report" in shown


def test_lines_fit_a_hundred_columns() -> None:
    for make in (samples.bottleneck, samples.healthy, samples.dead_rank, samples.many_ranks):
        assert max(map(len, render(make(), "text").split("\n"))) <= 100


@pytest.mark.parametrize(
    ("name", "format"),
    [("a.txt", "text"), ("a.JSON", "json"), ("b/c.md", "md"), ("x.y.html", "html"), ("r.htm", "html")],
)
def test_a_file_name_chooses_the_format(name: str, format: str) -> None:
    assert format_of(name) == format


@pytest.mark.parametrize("name", ["report", "report.pdf", ".html", "a.html.gz"])
def test_another_file_name_is_refused(name: str) -> None:
    with pytest.raises(UsageError):
        format_of(name)


def test_another_format_is_refused() -> None:
    with pytest.raises(UsageError):
        render(samples.healthy(), "pdf")
