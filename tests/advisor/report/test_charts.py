"""Charts as SVG: lengths stand for values, what cannot be drawn is left out, and names are no markup."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from report_samples import CURVE
from rn50_advisor.advisor.model.report import Capacity, Segment
from rn50_advisor.advisor.report import charts

PHASES = ("input_wait", "forward", "own")


def parsed(drawn: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(drawn)


def widths(drawn: Markup) -> list[float]:
    return [float(rect.attrib["width"].rstrip("%")) for rect in parsed(drawn).iter("rect")]


def test_phases_are_as_wide_as_their_share_of_the_longest_step() -> None:
    bar = charts.budget_bar(
        {"input_wait": 0.2, "forward": 0.05, "own": 0.0}, names=PHASES, longest_s=0.5, title="rank 1"
    )
    assert widths(bar) == [40.0, 10.0]
    assert parsed(bar).attrib["aria-label"] == "rank 1: 250 ms per step"
    assert [text.text for text in parsed(bar).iter("text")] == ["80 %", "20 %"]
    assert [rect.attrib["class"] for rect in parsed(bar).iter("rect")] == ["p-input-wait", "p-forward"]


def test_a_phase_too_narrow_for_its_share_has_it_in_its_title_alone() -> None:
    bar = charts.budget_bar({"input_wait": 0.95, "forward": 0.05}, names=PHASES, longest_s=1.0, title="")
    assert [text.text for text in parsed(bar).iter("text")] == ["95 %"]
    assert "forward: 50.0 ms, 5.0 %" in bar


@pytest.mark.parametrize("seconds", [0.0, -1.0, 2.0, math.nan, math.inf])
def test_a_phase_that_does_not_fit_the_scale_is_not_drawn(seconds: float) -> None:
    assert widths(charts.budget_bar({"forward": seconds}, names=PHASES, longest_s=1.0, title="")) == []


@pytest.mark.parametrize(
    ("name", "css"),
    [("input_wait", "p-input-wait"), ("gap.checkpoint", "p-gap-checkpoint"), ('x" onload="', "p-unattributed")],
)
def test_a_phase_has_a_colour_of_its_own(name: str, css: str) -> None:
    assert charts.phase_class(name) == css


@pytest.mark.parametrize(
    ("rates", "measured", "scale"),
    [
        ((), None, 1.0),
        ((None, 0.0, math.inf), None, 1.0),
        ((100.0, 300.0), None, 300.0),
        ((100.0, 5000.0), None, 500.0),  # a stage far ahead leaves room to see the slow ones
        ((100.0, 5000.0), 800.0, 800.0),
    ],
)
def test_the_scale_of_capacities(rates: tuple[float | None, ...], measured: float | None, scale: float) -> None:
    stages = [Capacity("compute", rate, None, None, "") for rate in rates]
    assert charts.capacity_scale(stages, measured) == scale


def test_a_capacity_has_its_interval_as_a_whisker_and_the_jobs_rate_as_a_line() -> None:
    stage = Capacity("compute", 50.0, 40.0, 60.0, "")
    drawn = parsed(charts.capacity_bar(stage, scale=100.0, measured=25.0, slowest=True))
    (rect,) = drawn.iter("rect")
    assert (rect.attrib["class"], rect.attrib["width"]) == ("c-slowest", "47.00%")
    whisker, *ends, measured = drawn.iter("line")
    assert (whisker.attrib["x1"], whisker.attrib["x2"]) == ("37.60%", "56.40%") and len(ends) == 2
    assert measured.attrib["class"] == "measured" and measured.attrib["x1"] == "23.50%"


def test_a_capacity_beyond_the_scale_is_marked_as_cut() -> None:
    drawn = parsed(
        charts.capacity_bar(Capacity("copy", 500.0, 400.0, 600.0, ""), scale=100.0, measured=None, slowest=False)
    )
    assert [text.text for text in drawn.iter("text")] == ["»"] and list(drawn.iter("line")) == []


def points(drawn: Markup, tag: str = "polyline") -> list[str]:
    return [shape.attrib["points"] for shape in parsed(drawn).iter(tag)]


def test_a_line_breaks_where_nothing_is_known_and_a_lone_point_is_a_dash() -> None:
    series = [(0.0, 10.0), (5.0, 20.0), (6.0, None), (7.0, None), (8.0, 5.0), (9.0, None)]
    drawn = charts.plot(series, (), end_s=10.0, top=20.0, title="rate")
    assert points(drawn) == ["0.0,66.0 500.0,0.0", "800.0,99.0 850.0,99.0"]
    assert points(charts.plot([], (), end_s=1.0, top=1.0, title="")) == []


def test_a_value_above_the_top_stays_inside() -> None:
    assert points(charts.plot([(0.0, 50.0), (1.0, 50.0)], (), end_s=1.0, top=20.0, title="")) == ["0.0,0.0 1000.0,0.0"]


def test_segments_lie_behind_with_their_names_where_there_is_room() -> None:
    bands = (
        Segment("epoch", 0.0, 50.0, 0, 1, "epoch <1>"),
        Segment("checkpoint", 50.0, 51.0),
        Segment("warm-up", 60.0, 60.0),
        Segment('own" kind', 90.0, 100.0),
    )
    drawn = charts.plot([(0.0, 1.0)], bands, end_s=100.0, top=1.0, title="")
    assert [rect.attrib["class"] for rect in parsed(drawn).iter("rect")] == ["s-epoch", "s-checkpoint", "s-epoch"]
    assert [text.text for text in parsed(drawn).iter("text")] == ["epoch <1>"]


def test_marks_are_the_darker_the_larger_their_share() -> None:
    marks = [charts.Mark(0.0, 10.0, 0.0, "a"), charts.Mark(10.0, 10.0, 1.0, "b")]
    drawn = parsed(charts.plot([], (), end_s=100.0, top=1.0, title="", marks=marks))
    assert [(r.attrib["width"], r.attrib["opacity"]) for r in drawn.iter("rect")] == [
        ("10.00%", "0.25"),
        ("0.15%", "1.00"),
    ]


def test_the_forecast_is_a_band_with_a_dot_and_a_knee() -> None:
    drawn = charts.worker_chart(CURVE, top=500.0, title="workers")
    (dot,) = parsed(drawn).iter("circle")
    assert dot.attrib["cx"] == "1.00%"
    assert [line.attrib["x1"] for line in parsed(drawn).iter("line") if line.attrib["class"] == "knee"] == ["36.25%"]
    (band,) = points(drawn, "polygon")
    assert len(band.split()) == 2 * len(CURVE.points)


def test_ticks_of_workers_end_at_the_last() -> None:
    assert [n for _, n in charts.worker_ticks(CURVE)] == list(range(9))
    assert [n for _, n in charts.worker_ticks(CURVE, most=3)] == [0, 4, 8]
    assert charts.worker_ticks(CURVE)[-1][0] == pytest.approx(charts.LONGEST_BAR_PERCENT + 1)


@pytest.mark.parametrize(
    ("largest", "top"),
    [(1.0, 1.2), (1.18, 1.6), (9.7, 12), (119.0, 160.0), (0.004, 0.005), (96.0, 100.0), (97.0, 120.0)],
)
def test_an_axis_ends_at_the_next_round_number(largest: float, top: float) -> None:
    assert charts.round_top(largest) == pytest.approx(top)


def test_ticks_of_time_are_equally_far_apart() -> None:
    assert charts.clock_ticks(120.0) == ["0:00", "0:30", "1:00", "1:30", "2:00"]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_drawn(number: float) -> None:
    assert charts.rect(0.0, number, "c", "") == charts.rect(number, 1.0, "c", "") == ""
    assert charts.line(number, 1.0, 0, 0, "c") == ""


def test_names_are_text() -> None:
    drawn = charts.svg(10, "</svg><script>\x1b", [charts.rect(0.0, 1.0, "c", '<b> & "')])
    assert not re.search(r"<(script|b)>", drawn) and "\x1b" not in drawn
    assert [title.text for title in parsed(drawn).iter("title")] == ['<b> & "']


def test_a_row_of_the_rank_chart_is_the_darker_the_longer_its_steps() -> None:
    ratios = [0.9, 1.1, 1.2, None, 1.4, 1.9, 5.0, 5.0]
    drawn = charts.heat(ratios, [False] * 6 + [True] * 2, start_s=10.0, slice_s=10.0, end_s=100.0, title="rank <1>")
    paths = {path.attrib["class"]: path.attrib["d"] for path in parsed(drawn).iter("path")}
    assert paths == {
        "h0": "M100.0 8h200.0",
        "h1": "M300.0 8h100.0",
        "h2": "M500.0 8h100.0",
        "h3": "M600.0 8h100.0",
        "h4": "M700.0 8h200.0",
        "behind": "M700.0 14h200.0",
    }
    assert parsed(drawn).attrib["aria-label"] == "rank <1>"


def test_values_for_the_pointer_are_attributes() -> None:
    data = charts.hover_data(1.5, 0.25, 's"', values=[1 / 3, None, 20.0])
    assert data == ' data-from="1.5" data-slice="0.25" data-unit="s&#34;" data-values="0.3333,,20"'


def test_each_point_of_the_forecast_says_its_rate() -> None:
    drawn = charts.worker_chart(CURVE, top=500.0, title="workers")
    texts = [rect[0].text for rect in parsed(drawn).iter("rect")]
    assert texts[:2] == ["0 workers: 109 samples/s", "1 worker: 140–160 samples/s"] and len(texts) == len(CURVE.points)
