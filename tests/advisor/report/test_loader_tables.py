"""Diffs and data loaders in every form of the report: whole, readable, and harmless whatever they hold."""

from __future__ import annotations

import html
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import report_samples as samples
from loader_samples import DIFF, report
from rn50_advisor.advisor.report import render, text
from rn50_advisor.advisor.tui.panels.capacity_panel import LoadersPanel
from rn50_advisor.advisor.tui.panels.check_panel import RunPanel
from rn50_advisor.advisor.tui.panels.finding_detail import finding_lines, finding_text

BEFORE = "def load():\n\treturn DataLoader(\n\t\tdata,\n\t\tnum_workers=2,\n\t)\n"
AFTER = BEFORE.replace("=2", "=6")
FORMATS = ("text", "md", "html")


def taken_from(shown: str, format: str) -> str:
    """The diff as one would copy it out of a report."""
    if format == "html":
        block = re.search(r'<pre class="diff"><code>(.*?)</code></pre>', shown, re.S)
        assert block is not None
        return html.unescape(re.sub(r"</?span[^>]*>", "", block[1])) + "\n"
    if format == "md":
        block = re.search(r"```diff\n(.*?)\n```", shown, re.S)
        assert block is not None
        return block[1] + "\n"
    lines = shown.split("\n")
    first = next(n for n, line in enumerate(lines) if "--- a/train.py" in line)
    indent = len(lines[first]) - len(lines[first].lstrip())
    return "\n".join(line[indent:] for line in lines[first : first + 9]) + "\n"


@pytest.mark.parametrize("format", FORMATS)
def test_a_diff_that_is_copied_out_of_a_report_applies(format: str, tmp_path: Path) -> None:
    file = tmp_path / "train.py"
    file.write_text(BEFORE)
    diff = taken_from(render(report(), format), format)
    done = subprocess.run(["patch", "-p1"], cwd=tmp_path, input=diff, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    assert file.read_text() == AFTER


def test_a_diff_copied_from_the_screen_applies(tmp_path: Path) -> None:
    made = report()
    copied = finding_text(made.findings[0], made)
    file = tmp_path / "train.py"
    file.write_text(BEFORE)
    diff = copied[copied.rindex("--- a/") :]
    subprocess.run(["patch", "-p1"], cwd=tmp_path, input=diff, text=True, capture_output=True, check=True)
    assert file.read_text() == AFTER


@pytest.mark.parametrize("width", [40, 76, 120])
def test_the_screen_shows_the_diff_within_its_width(width: int) -> None:
    made = report(diff=DIFF.replace("data,", "data, " + "x" * 200))
    shown = [content.plain for content in finding_lines(made.findings[0], made, width)]
    first = next(n for n, line in enumerate(shown) if line.strip().startswith("--- a/"))
    lines = shown[first : first + 9]
    assert any(line.startswith("   +") and "num_workers=6" in line for line in lines)
    assert all(len(line) <= width for line in lines)


def test_without_a_diff_nothing_of_it_is_shown() -> None:
    for format in FORMATS:
        shown = render(replace(report(), findings=(samples.LOADER,)), format)
        assert "@@" not in shown and '<pre class="diff">' not in shown and "```diff" not in shown


@pytest.mark.parametrize("format", FORMATS)
def test_a_diff_can_do_no_harm(format: str) -> None:
    nasty = DIFF.replace("data,", "\x1b[31m</pre><script>alert(1)</script>```\u202e")
    shown = render(report(diff=nasty), format)
    assert "\x1b" not in shown and "\u202e" not in shown
    assert "<script>alert" not in shown or format != "html"
    if format == "md":
        fence = re.search(r"^(`{3,})diff$", shown, re.M)
        assert fence is not None and len(fence[1]) == 4


def test_the_summary_names_the_option_that_does_it() -> None:
    finding = samples.LOADER
    fix = replace(finding.fixes[0], title="num_workers=4 → 6", options=("pass --workers 6",))
    summary = text.summary(replace(report(), findings=(replace(finding, fixes=(fix,)),)))
    assert "fix     samples/train.py:142: num_workers=4 → 6: pass --workers 6\n" in summary
    assert "pass" not in text.summary(samples.bottleneck())


@pytest.mark.parametrize("format", FORMATS)
def test_loaders_are_shown(format: str) -> None:
    shown = html.unescape(render(report(), format)).replace("\\", "")
    assert "train.py:57" in shown and "4 workers" in shown and "ImageFolder, 1,281,167" in " ".join(shown.split())
    if format != "text":
        assert "RandomResizedCrop(size=(224, 224))" in shown and "default_collate" in shown.replace("\u200b", "")


def test_the_screen_shows_all_of_a_loader_and_not_twice() -> None:
    shown = "\n".join(content.plain for content in LoadersPanel().draw(report(), 100))
    assert "/job/train.py:57  trains" in shown and "RandomResizedCrop(size=(224, 224))" in shown
    assert "collate_fn" in shown and "36.8 MiB" in shown
    run = "\n".join(content.plain for content in RunPanel().draw(report(), 100))
    assert "torch" in run and "default_collate" not in run


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"torch": "2.8"},
        {"0": {"loaders": 7}},
        {"0": {"loaders": [7, None, {}]}},
        {"0": {"loaders": [{"dataset": 7, "line": {}, "num_workers": "x"}]}},
        {"0": {"loaders": [{"dataset": {"transforms": [1], "parts": [], "tensors": [2], "inner": 5}}]}},
        {"0": {"loaders": [{"file": text, "sampler": text} for text in samples.HOSTILE]}},
    ],
)
def test_facts_of_any_shape_can_be_shown(facts: Any) -> None:
    made = replace(report(), facts=facts)
    for format in FORMATS:
        render(made, format)
    LoadersPanel().draw(made, 60)
    RunPanel().draw(made, 60)
