"""A benchmark shown: in each format, and with hostile names."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from bench_samples import A100, OPTIONS, cell, measured, setting
from rn50_advisor.advisor.bench.conclude import against, conclude
from rn50_advisor.advisor.model.documents.benchmark import Benchmark, parse_benchmark
from rn50_advisor.advisor.report import FORMATS
from rn50_advisor.advisor.report.benched import render

HOSTILE = "</script><img src=x onerror=alert(1)>|\x1b[31m`*_@team\n# not a title"


def sample(host: str = "node") -> Benchmark:
    cells = [
        measured(setting("fp32", True, 64), 500.0),
        measured(setting("bf16", True, 64), 900.0),
        measured(setting("bf16", True, 128), 1000.0, rule="DAT001", title="Preprocessing exhausts the CPUs"),
        measured(setting("bf16", True, 256), 1010.0),
        cell(setting("bf16", True, 512), state="oom", why="CUDA out of memory"),
        cell(setting("fp16", True, 64), state="failed", why="exit code 1: RuntimeError: no such kernel"),
        measured(setting("bf16", True, 128, 8), 6400.0),
    ]
    made = conclude(
        replace(A100, host=host), replace(OPTIONS, model=host if host != "node" else "resnet50"), cells, made_unix_s=0.0
    )
    return against(made, made, host)


def test_text_has_the_fastest_first_and_every_setting_once() -> None:
    text = render(sample(), "text")
    lines = text.splitlines()
    assert lines[0] == "resnet50 at 224 px on 8 × NVIDIA A100-SXM4-40GB"
    assert "fastest: 6,400 images/s with bf16, channels-last, batch 128, 8 devices" in lines[1]
    table = text[text.index("setting ") : text.index("BATCHES")]
    assert table.count("bf16, channels-last, batch 256, 1 device") == 1
    assert "does not fit in memory: CUDA out of memory" in table
    assert "DAT001: Preprocessing exhausts the CPUs" in table
    assert re.search(r"128 +1,000 +99 % +point of diminishing returns", text) and re.search(
        r"512 +– +– +does not fit", text
    )
    assert re.search(r"8 +80 % +77 % to 83 %", text), "efficiency with its interval"
    assert "against node: 5 no difference" in text


def test_text_stays_readable_where_it_is_narrow() -> None:
    text = render(sample(), "text")
    assert max(len(line) for line in text.splitlines()) <= 165
    assert not any(line != line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("format", FORMATS)
def test_hostile_names_obey_nobody(format: str) -> None:
    text = render(sample(HOSTILE), format)
    assert "\x1b" not in text
    assert "<img" not in text or format in ("text", "json"), "which are no markup"
    if format == "md":
        assert "\n# not" not in text and "@team" not in text.replace("@\u200bteam", "")


def test_the_page_holds_its_plots_and_data_and_loads_nothing() -> None:
    page = render(sample(), "html")
    assert len(page) < 400_000
    assert "default-src 'none'" in page and not re.search(r"(src|href)=", page)
    assert page.count("<svg") >= 3 and page.count('class="knee"') == 1
    data = re.search(r'<script type="application/json" id="benchmark-data">(.*?)</script>', page, re.S)
    assert data is not None and parse_benchmark(json.dumps(json.loads(data[1]))).cells == sample().cells
    assert page.count("<script") == 1


def test_json_is_the_contract() -> None:
    document = json.loads(render(sample(), "json"))
    assert list(document)[:4] == ["schema", "made_unix_s", "machine", "options"]
    assert document["cells"][0]["precision"] == "fp32" and document["cells"][0]["images_per_s"]["value"] == 500.0
    assert document["sweeps"][0]["knee"] == 128 and document["sweeps"][0]["oom_at"] == 512
