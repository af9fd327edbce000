"""WHY, FIX and GAIN: from the verdict's finding, else what is known without one; each in one line that fits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

import report_samples as samples
from first_views import missing_of
from rn50_advisor.advisor.model.findings import Evidence, Fix, Saving, Where
from rn50_advisor.advisor.model.report import Job, NodeStrip, Report, StepTime, Verdict
from rn50_advisor.advisor.tui.panels.banner import Banner
from rn50_advisor.advisor.tui.panels.verdict_lines import clipped, fix_line, gain_line, place_words, why_line
from rule_runs import found
from rule_tables import TABLES


def told(report: Report, width: int = 120) -> list[str]:
    return [draw(report, width).plain for draw in (why_line, fix_line, gain_line)]


def about(**changes: object) -> Report:
    """The running job whose verdict's finding has these other values."""
    report = samples.running()
    return replace(report, findings=(replace(report.findings[0], **changes), *report.findings[1:]))  # type: ignore[arg-type]


def test_a_bottleneck_has_its_evidence_the_change_and_the_likely_gain_first() -> None:
    assert told(samples.running()) == [
        " WHY  70 % of the steady step, on the critical path; DataLoader at samples/train.py:142",
        " FIX  samples/train.py:142  load in worker processes: num_workers=6",
        " GAIN about 2.5× faster (2.1–2.9×), saves 310–380 ms per step",
    ]


@pytest.mark.parametrize(
    ("evidence", "why"),
    [
        (Evidence("step.input_wait_s", 0.4, "s", None, "40 % of a 1.00 s step"), "Input wait: 40 % of a 1.00 s step"),
        (Evidence("comm.exposed_s", 0.2, "s", None, "20 % of the step, after the last gradient"), "Exposed communication: 20 %"),
        (Evidence("gpu.host_bound_s", 0.6, "s", None, "60 % of a 1.00 s step is host-bound"), "60 % of a 1.00 s step is"),
        (Evidence("compile.late", 1.0, "", None, "loss_of was recompiled 1 time: x"), "loss_of was recompiled"),
        (Evidence("sync.calls", 1.0, "", None, ".item() at train.py:88"), ".item() at train.py:88"),
    ],
)  # fmt: skip
def test_a_share_says_of_what_and_names_of_the_users_stay_as_they_are(evidence: Evidence, why: str) -> None:
    assert told(about(evidence=(evidence,)))[0].startswith(f" WHY  {why}")


class Low(Banner):
    brief = property(lambda self: True)  # type: ignore[assignment]  # as on a terminal of 24 lines


@pytest.mark.parametrize("rule", TABLES)
def test_what_why_and_what_to_type_fit_at_80_and_120_columns_for_each_rule(rule: str) -> None:
    finding = found(rule, TABLES[rule].job())
    report = replace(samples.bottleneck(), findings=(finding,), verdict=Verdict("bottleneck", rule, finding.title, ""))
    for banner, width in ((Low(), 80), (Banner(), 120)):
        lines = [content.plain for content in banner.draw(report, width)]
        assert missing_of(lines, report) == [] and all(cell_len(line) <= width for line in lines)
        assert not [line for line in lines if "e+0" in line], "no exponents"


def test_an_option_of_the_job_is_what_one_types() -> None:
    fix = Fix("num_workers=1", where=Where("/job/train.py", 111), typed=("--workers 1",))
    report = replace(about(fixes=(fix,)), environment={"cwd": "/job"})
    assert told(report)[1] == " FIX  --workers 1  train.py:111  num_workers=1"


@pytest.mark.parametrize(
    ("report", "lines"),
    [
        (samples.healthy(), ("95 % of the step is computing", "none needed", "none expected")),
        (replace(samples.healthy(), findings=samples.running().findings[2:]), ("", "none needed; 1 minor finding, see 2", "")),
        (replace(samples.healthy(), step_time=StepTime(0.1, 0.1, 8, 5)), ("95 %", "none so far", "no prediction yet")),
        (samples.young(), ("No step has ended yet", "none yet: no step has ended", "no prediction yet")),
        (samples.inconclusive(), ("2 steps were seen", "none known; see 5 Checks for what was not measured", "no prediction")),
        (samples.hang(), ("No step for 4m 12s; augment", "data/augment.py:57  look at", "no prediction: the job makes no progress")),
        (samples.dead_rank(), ("Memory of the cgroup 15.9 GiB", "give the job more memory", "no prediction: the job has ended")),
        (samples.empty(), ("nothing is known yet", "none known", "no prediction")),
    ],
)  # fmt: skip
def test_without_a_bottleneck_the_lines_say_what_is_known(report: Report, lines: tuple[str, str, str]) -> None:
    for line, label, expected in zip(told(report), ("WHY", "FIX", "GAIN"), lines, strict=True):
        assert line.startswith(f" {label:<5}{expected}")


def test_a_job_that_failed_without_a_finding_points_to_its_output() -> None:
    verdict = Verdict("failed", None, "The job ended with exit code 3", "It ended after 20 steps.")
    report = replace(samples.healthy(), verdict=verdict, job=Job(("x",), 3, 5.0, 1))
    assert told(report) == [
        " WHY  It ended after 20 steps.",
        " FIX  see the end of the job's output",
        " GAIN no prediction: the job has ended",
    ]


def test_a_finding_without_fix_or_prediction_says_so() -> None:
    assert told(about(fixes=(), saving=None))[1:] == [
        " FIX  no change is known that helps; see 2 Findings",
        " GAIN no prediction yet",
    ]


def test_a_wide_range_has_no_likely_value() -> None:
    assert told(about(saving=Saving((0.1, 0.4), (1.3, 4.0), "", likely=2.0)), 80)[2] == (
        " GAIN 1.3–4.0× faster, saves 100–400 ms per step"
    )


def test_evidence_names_the_host_where_there_are_others() -> None:
    base = about(scope=replace(samples.LOADER.scope, hosts=("node1",)))
    nodes = tuple(NodeStrip(host, (rank,)) for rank, host in enumerate(("node0", "node1")))
    assert told(replace(base, nodes=nodes))[0].startswith(" WHY  On node1: 70 % of")
    assert told(base)[0].startswith(" WHY  70 % of")


def test_evidence_without_a_note_is_its_metric_and_value() -> None:
    evidence = (Evidence("step.gap_s", 0.2, "s"), Evidence("x", None))
    assert told(about(evidence=evidence))[0] == " WHY  Time between steps 200 ms"


@pytest.mark.parametrize("width", [20, 34, 60, 80, 120, 200])
@pytest.mark.parametrize("make", samples.ALL.values(), ids=samples.ALL)
def test_each_line_fits(make, width: int) -> None:
    assert all(cell_len(line) <= width and "\n" not in line for line in told(make(), width))


def test_of_two_pieces_of_evidence_the_second_one_is_whole_or_not_there() -> None:
    assert told(samples.running(), 80)[0] == " WHY  70 % of the steady step, on the critical path"


@pytest.mark.parametrize(
    ("file", "folder", "width", "said"),
    [
        ("/job/src/train.py", "/job", 40, "src/train.py:7"),
        ("/job/src/train.py", "/job/", 40, "src/train.py:7"),
        ("/jobs/train.py", "/job", 40, "/jobs/train.py:7"),
        ("/a/very/long/way/to/train.py", "/job", 17, "…/to/train.py:7"),
        ("/a/way/to/a_train.py", "/job", 9, "…ain.py:7"),
    ],
)
def test_a_place_is_relative_to_the_jobs_folder_or_the_end_of_its_path(
    file: str, folder: str, width: int, said: str
) -> None:
    assert place_words(Where(file, 7), folder, width) == said


@pytest.mark.parametrize(
    ("text", "width", "said"),
    [
        ("short", 10, "short"),
        ("one two; three four five", 14, "one two …"),
        ("a, bcdefghijklmnop qrst", 14, "a, bcdefghijk…"),
        ("two\nlines", 10, "two lines"),
        ("anything", 0, ""),
    ],
)
def test_a_long_text_ends_with_a_clause_where_that_keeps_half_of_it(text: str, width: int, said: str) -> None:
    assert clipped(text, width) == said


def test_a_place_opens_an_editor_and_an_option_is_copied_by_a_click() -> None:
    fix = Fix("num_workers=1", where=Where("train.py", 111), typed=("--workers 1",))
    line = fix_line(about(fixes=(fix,)), 80)
    actions = {
        line.plain[s.start : s.end]: s.style.meta["@click"] for s in line.spans if getattr(s.style, "meta", None)
    }
    assert actions == {"--workers 1": "app.copy_fix", "train.py:111": "app.edit_fix"}


def test_a_finding_of_the_verdict_that_is_no_longer_there_leaves_its_own_words() -> None:
    report = replace(samples.running(), findings=())
    assert (
        told(report)[0]
        == " WHY  70 % of every step is spent decoding images in the training process itself, on both ranks."
    )
