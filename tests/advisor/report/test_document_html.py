"""A result as a page: small, drawn to scale, with its data."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import pytest

from document_samples import TABLE, every_block, shown_in_all
from rn50_advisor.advisor.report import document_html
from rn50_advisor.advisor.report.document import Bar, Bars, Block, CodeLines, Plot, Section, TableRow


def test_a_page_shows_fewer_rows_before_it_grows_too_large() -> None:
    rows = [TableRow((f"row{n}", "&" * 300, "<" * 300)) for n in range(2000)]
    page = shown_in_all(replace(TABLE, rows=rows, most=2000))["html"]
    assert len(page.encode()) <= document_html.PAGE_LIMIT and "row0" in page and "more are in the JSON" in page


def page(*blocks: Block) -> str:
    return shown_in_all(*blocks)["html"]


def test_bars_are_drawn_to_the_largest_one_with_their_intervals() -> None:
    rows = (
        Bar("a", "50", "", 50.0, 40.0, 60.0, slow=True),
        Bar("b", "100", "", 100.0, 99.0, 150.0),
        Bar("c", "–", "why"),
    )
    shown = page(Bars(rows, "images/s"))
    drawn = re.findall(r'<rect class="(c-\w+)" x="0.00%" y="0" width="([\d.]+)%"', shown)
    assert drawn == [("c-slowest", "47.00"), ("c-stage", "94.00")]
    whiskers = re.findall(r'<line class="whisker" x1="([\d.]+)%" x2="([\d.]+)%"', shown)
    assert whiskers == [("37.60", "56.40"), ("93.06", "100.00")], "none leaves the page"
    assert "why" in shown and shown.count("images/s</span>") == 2


@pytest.mark.parametrize("rows", [(Bar("a", "–", ""),), (Bar("a", "0", "", 0.0),)])
def test_without_a_value_there_is_no_bar(rows: tuple[Bar, ...]) -> None:
    assert "<rect" not in page(Bars(rows, "images/s"))


def test_a_plot_has_a_dot_a_point_its_axis_and_the_marked_one() -> None:
    plot = Plot("by batch", (50.0, 80.0, 100.0), ("8: 50", "<b>16</b>", "32: 100"), str, ("8", "16", "32"), "batch", 1)
    shown = page(plot)
    assert re.findall(r'<circle class="dot" cx="([\d.]+)%" cy="([\d.]+)"', shown) == [
        *(("4.00", "77.0"), ("50.00", "44.0"), ("96.00", "22.0")),
    ]
    assert '<line class="knee" x1="50.00%"' in shown
    assert "<span>120.0</span><span>60.0</span><span>0.0</span>" in shown
    assert "&lt;b&gt;16&lt;/b&gt;" in shown and "<b>16</b>" not in shown


def test_a_plot_of_one_point_marks_nothing_by_itself() -> None:
    shown = page(Plot("", (5.0,), ("one",), str, ("a",), ""))
    assert shown.count('class="dot"') == 1 and 'class="knee"' not in shown


def test_numbers_stand_to_the_right_names_are_heads_and_bad_rows_are_marked() -> None:
    rows = [TableRow(("a", "1", "x"), "bad"), TableRow(("b", "2", "y"))]
    shown = page(replace(TABLE, rows=rows))
    assert '<th scope="col" class="num">rate</th>' in shown and re.search('<th scope="row"[^>]*>a</th>', shown)
    assert '<td class="num" data-head="rate">1</td>' in shown and shown.count('<tr class="outlier">') == 1


def test_a_folded_table_is_behind_its_title() -> None:
    assert "<details><summary>All of them</summary>" in page(replace(TABLE, folded="All of them"))


def test_the_data_are_in_the_page_and_cannot_leave_their_element() -> None:
    made = every_block("</script><script>alert(1)</script>")
    shown = document_html.render(made)
    (data,) = re.findall(r'<script type="application/json" id="sample-data">(.*?)</script>', shown, re.S)
    assert json.loads(data) == made.embedded()
    assert shown.count("<script") == 2 and "<script>alert" not in shown, "the data, and the page's own script"


def test_only_a_page_with_lines_to_copy_runs_a_script_and_only_its_own() -> None:
    copies = page(Section("Change", (CodeLines("x < 1"), CodeLines("-a\n+b", "diff"))))
    assert '<div class="copyable" data-copy="change"><pre><code>x &lt; 1</code></pre></div>' in copies
    assert (
        '<pre class="diff"><code><span class="removed">-a</span>\n<span class="added">+b</span></code></pre>' in copies
    )
    (script,) = re.findall(r"<script>(.*?)</script>", copies, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in copies
    assert "script-src" not in page(TABLE) and page(TABLE).count("<script") == 1
