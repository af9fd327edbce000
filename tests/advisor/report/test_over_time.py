"""What the HTML report draws over the run's time."""

from __future__ import annotations

from dataclasses import replace

import report_samples as samples
from rn50_advisor.advisor.model.report import NodeStrip, Report, TimelinePoint
from rn50_advisor.advisor.report.over_time import timeline


def with_late(ranks: list[int]) -> Report:
    """64 ranks, in slices of 10 s in which the others waited for these."""
    report = samples.many_ranks(64)
    points = tuple(TimelinePoint(10.0 * n, 30.0, 0.5, 0.1, rank, 0.1 + 0.1 * n) for n, rank in enumerate(ranks))
    return replace(report, timeline=points, job=replace(report.job, duration_s=10.0 * len(ranks)))


def test_each_rank_that_was_waited_for_has_its_row() -> None:
    drawn = timeline(with_late([41, 7, 41]))
    assert drawn is not None
    assert [(row.rank, row.label, row.value) for row in drawn.late_ranks] == [
        (41, "rank 41", "up to 300 ms a step"),
        (7, "rank 7", "up to 200 ms a step"),
    ]
    first, second = (str(row.drawn) for row in drawn.late_ranks)
    assert first.count('class="late"') == 2 and 'x="0.00%"' in first and 'x="66.67%"' in first
    assert second.count('class="late"') == 1 and 'x="33.33%"' in second and 'width="33.33%"' in second


def test_the_hosts_of_late_ranks_are_named_where_there_are_several() -> None:
    nodes = (NodeStrip("a", tuple(range(32))), NodeStrip("b", tuple(range(32, 64))))
    drawn = timeline(replace(with_late([41, 7, 41]), nodes=nodes))
    assert drawn is not None and [row.label for row in drawn.late_ranks] == ["rank 41 on b", "rank 7 on a"]


def test_of_very_many_late_ranks_64_are_shown_and_the_rest_counted() -> None:
    drawn = timeline(with_late(list(range(100))))
    assert drawn is not None and len(drawn.late_ranks) == 64 and drawn.late_hidden == 36


def test_the_parts_of_a_step_are_drawn_where_they_are_known() -> None:
    drawn = timeline(samples.bottleneck())
    assert drawn is not None
    assert [(row.label, row.value) for row in drawn.sparklines] == [
        ("whole step", "580 ms"),
        ("waiting for input", "406 ms"),
        ("all other phases", "174 ms"),
    ]
    unknown = timeline(samples.healthy())  # the share of waiting was not recorded
    assert unknown is not None and unknown.sparklines == ()


def test_what_no_axis_can_show_is_not_drawn() -> None:
    report = samples.bottleneck()
    for points in (
        (),
        (TimelinePoint(0.0, 1.0, 1.0),),
        (TimelinePoint(0.0, 1e300, 1.0), TimelinePoint(1.0, 1e300, 1.0)),
    ):
        assert timeline(replace(report, timeline=points)) is None
