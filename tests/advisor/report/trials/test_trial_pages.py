"""Output of `try`: eighty columns, small pages, changes to copy, and no active text from a job."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import trial_samples as samples
from hostile_text import DANGEROUS
from report_samples import HOSTILE
from rn50_advisor.advisor.model.trials import Tried, from_json
from rn50_advisor.advisor.report import FORMATS, document_text
from rn50_advisor.advisor.report.trials.trial_pages import document, render

ALL = (samples.several, samples.without_gain, samples.undecided, samples.nothing_tried)
PAGE_BYTES = 100_000


@pytest.mark.parametrize("made", ALL)
def test_the_text_fits_eighty_columns_and_has_a_line_a_trial(made: Callable[[], Tried]) -> None:
    text = render(made(), "text")
    assert max(map(len, text.splitlines())) <= 80
    judged = [trial for trial in made().trials if trial.outcome != "refused"]
    assert [line.split()[0] for line in re.findall(r"^  .*[▲=?] (?:faster|no gain|undecided)$", text, re.M)] == [
        trial.rule for trial in judged
    ]


def test_the_text_says_the_answer_first_then_trials_changes_and_what_was_not_tried() -> None:
    text = render(samples.several(), "text")
    assert text.startswith("▲ faster: 1.52× as fast (1.49–1.56×) with DataLoader.num_workers=2 (DAT003)\n")
    parts = (
        "40.1 samples/s as it is, about 61.1 with DAT003",
        "all 3 at once: 1.71× (1.65–1.78×)",
        "TRIALS",
        "DAT003  num_workers=2              1.3–1.6×  1.52× (1.49–1.56×)  ▲ faster",
        "check the accuracy",
        "5–9 % slower",
        "about 12 more pairs (1m 36s) would decide",
        "WHAT TO CHANGE",
        "    DataLoader(..., num_workers=2)",
        "    +        num_workers=2,",
        "NOT TRIED",
        "LOP002  the training loop: it rewrites the training loop",
        "note   the network could not be held back",
    )
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_wide_terminal_has_the_likely_gain_and_whole_changes() -> None:
    wide = document_text.render(document(samples.several(), width=120))
    assert "DistributedDataParallel.bucket_cap_mb=50     1.04× (1.00–1.08×)" in wide
    assert max(map(len, wide.splitlines())) <= 120


def test_the_largest_gain_is_the_first_to_be_changed() -> None:
    titles = re.findall(r"^### (\w+)", render(samples.several(), "md"), re.M)
    assert titles == ["DAT003", "CMP001", "CPU009"]


@pytest.mark.parametrize("made", ALL)
def test_a_page_is_small_complete_and_loads_nothing(made: Callable[[], Tried]) -> None:
    page = render(made(), "html")
    assert len(page.encode()) <= PAGE_BYTES
    assert not re.search(r"(src|href)=", page) and "default-src 'none'" in page
    (data,) = re.findall(r'<script type="application/json" id="try-data">(.*?)</script>', page, re.S)
    assert from_json(json.loads(data)) == made()


def test_a_page_has_a_bar_a_trial_and_each_change_to_copy() -> None:
    page = render(samples.several(), "html")
    assert page.count('<svg class="bar"') == 6 and page.count('data-copy="change"') == 3
    assert page.count('data-copy="diff"') == 1 and "check the accuracy" in page
    assert "<details><summary>2 changes, and why</summary>" in page


def test_many_long_diffs_are_no_flood() -> None:
    trial = replace(samples.WORKERS, diff="\n".join(f"+line {number} <b>" for number in range(400)))
    page = render(replace(samples.several(), trials=(trial,) * 40), "html")
    assert len(page.encode()) <= PAGE_BYTES and "it is in the JSON" in page
    (data,) = re.findall(r'<script type="application/json" id="try-data">(.*?)</script>', page, re.S)
    assert json.loads(data)["omitted"][0] == "diff"


def hostile() -> Tried:
    made = samples.several()
    trials = tuple(
        replace(trial, rule=text, title=text, knob=text, reason=text, change=text, diff=text)
        for trial in made.trials
        for text in HOSTILE
    )
    return replace(made, trials=trials, argv=HOSTILE, notes=HOSTILE)


@pytest.mark.parametrize("format", FORMATS)
def test_no_string_of_the_job_acts(format: str) -> None:
    shown = render(hostile(), format)
    assert not DANGEROUS.search(shown)
    if format == "md":
        shown = re.sub(r"^(`{3,}).*?^\1$", "", shown, flags=re.M | re.S)  # inside a fence nothing acts
    if format in ("md", "html"):
        assert "<script>alert" not in shown and "<img src" not in shown


def test_markdown_tables_have_as_many_cells_in_each_row() -> None:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", render(hostile(), "md"), re.M):
        rows = block.strip().splitlines()
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1, rows[:3]
