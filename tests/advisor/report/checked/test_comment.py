"""The comment on a change: found again by its marker, short enough, and harmless whatever the job is called."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from noisy_runs import noisy_run
from report_samples import HOSTILE, LOADER, bottleneck, healthy
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.report.checked.comment import CHARS, Links, comment, marker
from rn50_advisor.advisor.run_comparison import compare

LINKS = Links("https://forge/run/1", "https://forge/blob/abc/", "rn50-advisor-training")


def here(where: Where) -> Where:
    return where


def test_it_says_the_comparison_the_verdict_the_change_and_its_gain() -> None:
    runs = noisy_run("base", 1), noisy_run("this change", 2, scale=1.4)
    text = comment("training", bottleneck(), compare(runs, max_regression=0.05), links=LINKS, placed=here)
    assert text.startswith("<!-- rn50-advisor ci: training -->\n\n### ▼ regressed: this change against base: 0.7")
    for part in (
        "**Limit:** slower by more than 5.0 %",
        "### ▲ Bottleneck: Loading happens in the training process `DAT003`",
        "**Fix:** [`samples/train.py:142`](https://forge/blob/abc/samples/train.py#L142): load in worker processes",
        "num_workers=6, pin_memory=True",
        "**Gain:** about 2.5× faster",
        "**Also:** Checkpoints stop the training (LOP001)",
        "<details><summary>The comparison</summary>",
        "[run and files](https://forge/run/1); the pages are in rn50-advisor-training",
    ):
        assert part in text
    assert not any(line.startswith("# ") for line in text.splitlines()), "a heading of the page's own size"


def test_without_an_earlier_run_it_says_so_and_without_a_service_it_has_no_links() -> None:
    text = comment("training", healthy(), None, links=Links(), placed=here)
    assert "No earlier run to compare with yet." in text and "](" not in text
    assert "**Coverage:**" in text


@pytest.mark.parametrize("name", [*HOSTILE, "a --> b", ""])
def test_no_name_leaves_the_marker_or_the_page(name: str) -> None:
    first = marker(name)
    assert first.count("-->") == 1 and first.endswith(" -->") and "\n" not in first and len(first) < 120
    finding = replace(
        LOADER, title=name, fixes=(replace(LOADER.fixes[0], title=name, where=Where(f"a) [{name[:40]}", 3)),)
    )
    text = comment(name, replace(bottleneck(), findings=(finding,)), None, links=LINKS, placed=here)
    outside = re.sub(r"`[^`]*`", "", text)
    assert outside.count("<!--") == 1 and "<script" not in outside and "<img" not in outside
    assert "](https://forge/blob/abc/a%29%20%5B" in text, "a name in an address ends no link"


def test_two_jobs_never_share_a_comment() -> None:
    names = ("training", "a b", "a-b", "a  b", "обучение", "оценка", "x" * 90, "x" * 91)
    assert len({marker(name) for name in names}) == len(names)


def test_details_are_left_out_before_a_service_would_refuse_the_comment() -> None:
    long = "x" * 1000
    findings = tuple(replace(LOADER, rule=f"DAT{n:03}", title=long) for n in range(80))
    report = replace(bottleneck(), findings=findings)
    runs = noisy_run("base", 1), noisy_run("this change", 2, scale=1.4)
    made = compare(runs)
    pair = replace(made.pairs[0], notes=tuple(f"{n} {long}" for n in range(150)))
    text = comment("training", report, replace(made, pairs=(pair,)), links=LINKS, placed=here)
    assert len(text) <= CHARS and "<details>" not in text
    flooded = replace(pair, notes=tuple(f"{n} {long}" for n in range(400)))
    assert len(comment("training", report, replace(made, pairs=(flooded,)), links=LINKS, placed=here)) <= CHARS
