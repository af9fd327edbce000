"""What the HTML report draws over the run's time."""

from __future__ import annotations

from dataclasses import replace

import report_samples as samples
from rn50_advisor.advisor.model.history import History, compared
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
        (41, "rank 41", "up to 300 ms per step"),
        (7, "rank 7", "up to 200 ms per step"),
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


def with_history(ranks: int = 3, slow: int = 2) -> Report:
    """Ten slices of 6 s of 600 ms a step; one rank comes 300 ms late and is 1.4 times as slow in the second half."""
    base = samples.many_ranks(ranks, slow=slow)
    points = tuple(TimelinePoint(6.0 * n, 30.0, 0.6) for n in range(10))
    late = (*[0.0] * 5, *[0.3] * 5)
    history = History(
        start_s=0.0,
        slice_s=6.0,
        phases={
            "backward": (0.4,) * 10,
            "input_wait": (0.1,) * 5 + (0.3,) * 4 + (None,),
            "gap": (0.0001,) * 10,
            "gap.checkpoint": (0.0,) * 9 + (0.2,),  # seldom, but long
        },
        steps=dict.fromkeys(range(ranks), (10.0,) * 10),
        step_s={rank: (0.6,) * 5 + ((0.84 if rank == slow else 0.6),) * 4 + (None,) for rank in range(ranks)},
        late_s={rank: late if rank == slow else (0.0,) * 10 for rank in range(ranks)},
    )
    report = replace(base, timeline=points, segments=(), history=compared(history))
    return replace(report, job=replace(report.job, duration_s=60.0))


def test_each_phase_has_a_sparkline_on_a_scale_of_its_own() -> None:
    drawn = timeline(with_history())
    assert drawn is not None and drawn.by_phase
    assert [(row.label, row.value) for row in drawn.sparklines] == [
        ("whole step", "590 ms, at most 700 ms"),
        ("waiting for input", "189 ms, at most 300 ms"),
        ("backward", "400 ms, at most 400 ms"),
        ("checkpoints", "20.0 ms, at most 200 ms"),
    ]
    assert 'class="area p-input-wait"' in drawn.sparklines[1].drawn
    assert 'data-values="0.1,0.1,0.1,0.1,0.1,0.3,0.3,0.3,0.3,"' in drawn.sparklines[1].drawn


def test_each_rank_has_its_steps_and_lateness_over_the_run_those_apart_first() -> None:
    drawn = timeline(with_history())
    assert drawn is not None and drawn.late_ranks == ()
    assert [(row.rank, row.value) for row in drawn.rank_rows] == [
        (2, "up to 300 ms late"),
        (0, "up to 600 ms"),
        (1, "up to 600 ms"),
    ]
    slow, usual = drawn.rank_rows[0].drawn, drawn.rank_rows[1].drawn
    assert '<path class="h0" d="M0.0 8h500.0"/><path class="h2" d="M500.0 8h400.0"/>' in slow
    assert '<path class="behind" d="M500.0 14h500.0"/>' in slow and 'data-late=",,,,,0.3,0.3,0.3,0.3,0.3"' in slow
    assert "behind" not in usual and "h2" not in usual


def test_one_rank_has_no_rows_of_ranks_and_of_very_many_64_are_drawn() -> None:
    single, many = timeline(with_history(1, slow=0)), timeline(with_history(100))
    assert single is not None and single.rank_rows == () and single.by_phase
    assert many is not None and len(many.rank_rows) == 64 and many.ranks_hidden == 36


def test_values_at_the_pointer_are_left_out_where_points_are_uneven() -> None:
    report = with_history()
    uneven = timeline(replace(report, timeline=(*report.timeline, TimelinePoint(90.0, 30.0, 0.6))))
    even = timeline(report)
    assert even is not None and 'data-slice="6"' in even.svg and 'data-unit="samples/s"' in even.svg
    assert uneven is not None and "data-slice" not in uneven.svg
