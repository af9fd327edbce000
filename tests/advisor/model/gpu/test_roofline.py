"""A rank's FLOP/s in words, beside its GPU's peak and what others reached."""

from __future__ import annotations

import json
from dataclasses import replace

from deep_events import event
from gpu_rank_facts import FACTS
from recordings import plan, recording
from report_samples import bottleneck
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.gpu.roofline import roofline_facts, roofline_rows
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.report import html, markdown, text


def analysed(facts=FACTS, *, ranks: int = 1, samples: int = 256, window=None):
    """A step of 100 ms: 2560 samples a second of each rank."""
    rank_facts = {100 + rank: {**facts, "rank": rank} for rank in range(ranks)}
    events = (event(window),) if window is not None else ()
    return analyse(recording({rank: plan(samples=samples) for rank in range(ranks)}, facts=rank_facts, events=events))


def test_every_report_shows_it_once() -> None:
    made = bottleneck()
    report = replace(made, facts={**made.facts, "roofline": analysed().facts["roofline"]})
    rendered_text = text.render(report)
    assert "ARITHMETIC" in rendered_text and "24.5 GFLOP, as resnet50 at 224×224 is known to take" in rendered_text
    assert "62.8 TFLOP/s at 2,560 samples/s of one rank: 20 % of 312 TFLOP/s in bf16" in " ".join(rendered_text.split())
    assert "## Arithmetic and memory" in markdown.render(report) and 'id="arithmetic"' in html.render(report)
    for rendered in (rendered_text, markdown.render(report), html.render(report).split('type="application/json"')[0]):
        assert "peak_tflops" not in rendered
    again = from_json(json.loads(json.dumps(report.as_json())))
    assert text.render(again) == rendered_text
    assert "ARITHMETIC" not in text.render(made)


def test_facts_of_another_shape_are_passed_over() -> None:
    assert roofline_rows({}) == roofline_rows({"roofline": 7}) == roofline_rows({"roofline": {"rank": 0}}) == []
    assert roofline_facts(None) == {}
