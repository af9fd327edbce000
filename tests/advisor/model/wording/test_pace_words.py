"""Waits, copies, precision and model of a rank in a line each, wherever facts are shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.compare.run_settings import circumstances
from rn50_advisor.advisor.model.wording.pace_words import with_pace_in_words
from rn50_advisor.advisor.report import markdown, surroundings, text
from rn50_advisor.advisor.tui.panels.check_panel import RunPanel
from rn50_advisor.advisor.verdict.diagnose import diagnose

SITE = {"call": "item", "file": "/job/train.py", "line": 88, "count": 12, "looks": 12, "blocked_ns": 24_000_000}
FACTS: dict[str, Any] = {
    "pid": 100,
    "syncs": {"looks": 12, "device": "cuda", "sites": [SITE, {**SITE, "call": "__bool__", "line": 90}]},
    "copies": [{**SITE, "call": "to", "line": 61, "bytes": 924_000_000, "pinned": True, "non_blocking": True, "aside": False}],
    "conv": {
        "autocast": "bfloat16", "weight": "float32", "input_layout": "channels_first", "weight_layout": "channels_last",
        "shape": [128, 3, 224, 224],
    },
    "autocast": {"enabled": True, "device": "cuda", "dtype": "bfloat16"},
    "model": {"class": "torchvision.models.resnet.ResNet", "parameters": 25_557_032, "layers": {"Conv2d": 53, "Linear": 1}},
    "data_parallel": [{"devices": 4, "file": "/job/train.py", "line": 30}],
}  # fmt: skip
WORDS = {
    "model": "ResNet, 25.6 M parameters: 53 Conv2d, 1 Linear",
    "computes": "bfloat16 by autocast",
    "first_convolution": "input channels-first, weight channels-last, 128×3×224×224",
    "waits_for_the_gpu": (
        ".item() at train.py:88: 1 per step, 2 ms; a comparison or `if` at train.py:90: 1 per step, 2 ms "
        "(in 12 inspected steps)"
    ),
    "copies_to_the_gpu": "77 MB per step at train.py:61, pinned, non_blocking, 2 ms",
    "data_parallel": "4 GPUs, at train.py:30",
}


def test_each_fact_is_a_line() -> None:
    assert with_pace_in_words({"0": FACTS})["0"] == {"pid": 100, **WORDS}


@pytest.mark.parametrize(
    ("facts", "key", "words"),
    [
        ({"conv": {"weight": "float32", "autocast": None}}, "computes", "float32, no autocast"),
        ({"autocast": {"enabled": True, "dtype": "float16"}}, "computes", "float16 by autocast"),
        (
            {"autocast": {"enabled": True, "dtype": "float16"}, "conv": {"weight": "float32", "after_autocast": True}},
            "computes",
            "float32, autocast around no layer",
        ),
        (
            {"conv": {"weight": "float32", "after_autocast": True}, "linear": {"autocast": "bfloat16"}},
            "computes",
            "bfloat16 by autocast",
        ),
        ({"syncs": {"looks": 7, "sites": []}}, "waits_for_the_gpu", "none seen (in 7 inspected steps)"),
        ({"syncs": {"looks": 1, "sites": [SITE] * 6}}, "waits_for_the_gpu", "and 2 more"),
    ],
)
def test_words_cover_only_the_known_facts(facts: dict[str, Any], key: str, words: str) -> None:
    words_of_rank = with_pace_in_words({"0": facts})["0"]
    assert words in words_of_rank[key] and not words_of_rank.keys() & {"syncs", "autocast", "conv"}


@pytest.mark.parametrize("broken", [{"syncs": "many"}, {"copies": 7}, {"model": ["x"]}, {"data_parallel": "no"}])
def test_what_is_not_as_the_recorder_writes_it_stays(broken: dict[str, Any]) -> None:
    assert with_pace_in_words({"0": broken, "storage": {"model": "NVMe"}}) == {
        "0": broken,
        "storage": {"model": "NVMe"},
    }


def test_reports_and_screen_show_the_words() -> None:
    report = diagnose(recording({0: plan()}, facts={100: FACTS}))
    pairs = dict(surroundings.pairs(report))
    assert {pairs[f"job.0.{key}"] for key in WORDS} == set(WORDS.values())
    assert WORDS["copies_to_the_gpu"] in " ".join(text.render(report).split())
    assert WORDS["data_parallel"] in markdown.render(report) and "blocked_ns" not in markdown.render(report)
    shown = "\n".join(line.plain for line in RunPanel().draw(report, 120))
    assert "input channels-first" in shown and "blocked_ns" not in shown


def test_inspected_steps_are_no_difference_between_two_runs() -> None:
    report = diagnose(recording({0: plan()}, facts={100: FACTS}))
    found = circumstances(report)
    assert found["job", "conv.autocast"] == "bfloat16"
    assert not [name for _, name in found if name.startswith(("syncs", "copies"))]
    assert replace(report) == report


def test_a_place_that_is_not_known_is_left_out() -> None:
    site = {"call": "item", "count": 2, "bytes": 2_000_000, "pinned": True, "non_blocking": True}
    facts = {"syncs": {"looks": 2, "sites": [site]}, "copies": [site], "conv": {"shape": [2, 3]}}
    words = with_pace_in_words({"0": facts})["0"]
    assert words["waits_for_the_gpu"].startswith(".item(): 1 per step")
    assert words["copies_to_the_gpu"].startswith("1 MB per step, pinned")
    assert words["first_convolution"] == "2×3"
