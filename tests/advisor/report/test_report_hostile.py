"""No format lets a string of the job act: no escape reaches a terminal, no megabyte floods a report."""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest

import report_samples as samples
from document_samples import every_block
from hostile_text import DANGEROUS
from rn50_advisor.advisor.report import FORMATS, document_html, document_markdown, document_text, render, text


@pytest.mark.parametrize("format", FORMATS)
def test_no_control_character_is_in_the_output(format: str) -> None:
    assert not DANGEROUS.search(render(samples.hostile(), format))


@pytest.mark.parametrize("module", [document_text, document_markdown, document_html])
def test_nor_in_that_of_another_result(module: Any) -> None:
    shown = module.render(every_block(" ".join(samples.HOSTILE)))
    assert not DANGEROUS.search(shown)
    shown = re.sub(r"^(`{3,}).*?^\1$", "", shown, flags=re.M | re.S)  # inside a fence of Markdown nothing acts
    assert module is document_text or ("<script>alert" not in shown and "<img src" not in shown)


def test_nor_in_the_summary() -> None:
    assert not DANGEROUS.search(text.summary(samples.hostile(), "runs/\x1b[31m", "runs/\x1b[31m"))


@pytest.mark.parametrize("format", [f for f in FORMATS if f != "json"])
def test_a_ten_kilobyte_argument_does_not_flood_the_report(format: str) -> None:
    shown = render(samples.hostile(), format)
    body = re.sub(r"<script.*?</script>", "", shown, flags=re.S)
    assert "x" * 4100 not in body


def test_json_alone_keeps_every_string_whole() -> None:
    document = json.loads(render(samples.hostile(), "json"))
    assert tuple(document["job"]["argv"]) == samples.HOSTILE


def with_numbers(value: Any, number: float) -> Any:
    """The same report with this number in the place of every other."""
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: with_numbers(getattr(value, f.name), number) for f in fields(value)})
    if isinstance(value, dict):
        return {key: with_numbers(item, number) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(with_numbers(item, number) for item in value)
    return number if isinstance(value, float) else value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 0.0, -1.0, 5e-324, 1e308])
@pytest.mark.parametrize("format", FORMATS)
def test_no_number_breaks_a_format(format: str, number: float) -> None:
    shown = render(with_numbers(samples.bottleneck(), number), format)
    assert "DAT003" in shown
    assert not re.search(r'="(nan|-?inf)', shown)
