"""Output of `compare`: eighty columns, intact tables, and no active text from a job."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from hostile_text import DANGEROUS
from noisy_runs import noisy_run
from report_samples import HOSTILE
from rn50_advisor.advisor.model.documents.comparison import Comparison, FactChange, FindingChange
from rn50_advisor.advisor.report import FORMATS
from rn50_advisor.advisor.report.compared import render
from rn50_advisor.advisor.run_comparison import compare


def compared(**given: Any) -> Comparison:
    runs = noisy_run("before", 1), noisy_run("after-the-change", 2, scale=1.4), noisy_run("two-ranks", 3, ranks=2)
    return compare(runs, max_regression=0.05, **given)


def hostile() -> Comparison:
    made = compared()
    facts = tuple(FactChange("arguments", text, text, text) for text in HOSTILE)
    findings = tuple(FindingChange("X", text, "appeared", None, 0.1) for text in HOSTILE)
    pairs = tuple(replace(pair, facts=facts, findings=findings, notes=HOSTILE, why=HOSTILE[0]) for pair in made.pairs)
    runs = tuple(replace(run, name=HOSTILE[place], title=HOSTILE[0]) for place, run in enumerate(made.runs))
    return replace(made, pairs=pairs, runs=runs)


def test_the_text_fits_eighty_columns_and_begins_with_the_verdict() -> None:
    text = render(compared(), "text")
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("▼ regressed: after-the-change against before: 0.7")
    for part in ("limit  ", "STEP TIME BY PHASE", "efficiency", "ranks"):
        assert part in text
    assert "two-ranks against before" in text


def test_a_change_that_may_be_none_stands_in_brackets() -> None:
    first = next(line for line in render(compared(), "text").splitlines() if line.startswith("  forward"))
    assert re.search(r"  \+\d", first) and "(" not in first
    same = render(compare((noisy_run("a", 1), noisy_run("b", 2))), "text")
    assert re.search(r"^  forward .*\([+−].*\)", same, re.M)


def test_the_efficiency_column_is_there_only_where_it_says_something() -> None:
    assert "efficiency" not in render(compare((noisy_run("a", 1), noisy_run("b", 2))), "text")
    assert "efficiency" in render(compared(), "text")


def test_the_page_draws_the_phases_before_and_after_to_one_scale() -> None:
    page = render(compare((noisy_run("before", 1), noisy_run("after", 2, scale=2.0))), "html").split('id="section-')[2]
    bars = re.findall(r'<svg class="bar" role="img" aria-label="(\w+): [^"]*".*?</svg>', page, re.S)
    assert bars == ["before", "after"]
    ends = [
        max(
            float(x) + float(width) for x, width in re.findall(r'<rect [^>]*x="([\d.]+)%" y="0" width="([\d.]+)%"', bar)
        )
        for bar in re.findall(r"<svg.*?</svg>", page, re.S)
    ]
    assert ends[1] == pytest.approx(100.0, abs=0.2) and ends[0] == pytest.approx(50.0, abs=10)
    assert '<ul class="legend" aria-label="phases">' in page


def test_the_page_is_headed_by_the_result_and_lists_commands() -> None:
    made = compared()
    runs = tuple(replace(run, argv=("python", f"train{n}.py")) for n, run in enumerate(made.runs))
    page = render(replace(made, runs=runs), "html")
    headings = re.findall(r"<h1[^>]*>(.*?)</h1>", page)
    assert all(re.fullmatch(r"(No difference found: )?\d\.\d\d×.*", heading) for heading in headings), headings
    assert all(f">python train{n}.py</td>" in page for n in range(3))


def test_findings_are_a_table_on_a_page_and_in_markdown() -> None:
    made = compared()
    gone = FindingChange("DAT003", "Slow", "gone", 0.1, None)
    made = replace(made, pairs=tuple(replace(pair, findings=(gone,)) for pair in made.pairs))
    assert ">✓ gone</td>" in render(made, "html") and "| ✓ gone | Slow | DAT003 | 100 ms |" in render(made, "md")
    assert "✓ gone: Slow (DAT003), 100 ms per step" in render(made, "text")


def test_tables_of_a_page_have_as_many_cells_as_headers() -> None:
    for table in re.findall(r"<table.*?</table>", render(compared(), "html"), re.S):
        assert len({len(re.findall(r"<t[hd]\b", row)) for row in re.findall(r"<tr.*?</tr>", table, re.S)}) == 1


@pytest.mark.parametrize("format", FORMATS)
def test_no_string_of_the_job_acts(format: str) -> None:
    shown = render(hostile(), format)
    assert not DANGEROUS.search(shown)
    if format in ("md", "html"):
        assert "<script>alert" not in shown and "<img src" not in shown


def test_the_page_holds_its_own_data_and_loads_nothing() -> None:
    page = render(compared(), "html")
    data = re.search(r'<script type="application/json" id="comparison-data">(.*?)</script>', page, re.S)
    assert data and json.loads(data[1])["schema"] == "rn50-advisor/compare/1"
    assert not re.search(r"(src|href)=", page) and "default-src 'none'" in page
    assert len(page) < 400_000


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_runs_that_differ_in_hundreds_of_facts_are_no_flood(format: str) -> None:
    facts = tuple(FactChange("job", f"fact{n}", "<a>" * 400, "&" * 1000) for n in range(300))
    made = compared()
    flooded = render(replace(made, pairs=tuple(replace(pair, facts=facts) for pair in made.pairs) * 9), format)
    assert len(flooded.encode()) < (400_000 if format == "html" else 4_000_000)
    assert "more are in the JSON" in flooded


def test_markdown_tables_have_as_many_cells_in_each_row() -> None:
    for block in re.findall(r"(?:^\|.*\|$\n?)+", render(hostile(), "md"), re.M):
        rows = block.strip().splitlines()
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1, rows[:3]
