"""RUN003, the job became slower: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explained_rules import would_be_explained_by, would_explain
from rn50_advisor.advisor.model.analysis import Analysis, Coincidence, SpeedChange
from rn50_advisor.advisor.model.findings import Affected
from rule_cases import job, loader, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

IDLE = Coincidence("cpu.job_cores", "job", 2.0, 1.4, "cores")


BUSY = Coincidence("cpu.other_cores", "job", 0.1, 1.9, "cores")


def run003(
    after: float = 1.4,
    steps: tuple[float, float] = (200.0, 200.0),
    lasted: float = 280.0,
    *,
    alike: bool = False,
    until: float | None = None,
    lost: float | None = None,
    seen: tuple[Coincidence, ...] = (),
    number: int | None = 1,
    phase: str = "forward",
    **more: Any,
) -> Analysis:
    """From step 200 on rank 1 takes `after` seconds where it took one, in its forward."""
    own = {0: rank(), 1: rank()}
    share = (1.0 - 1.0 / after) / 2 if lost is None else lost
    change = SpeedChange(
        step=200, t_s=212.0, until_s=until, before_s=1.0, after_s=after, steps_before=steps[0], steps_after=steps[1],
        lasted_s=lasted, lost_share=share, rank=number, phase=phase, phase_s=after - 1.0, alike=alike, coincidences=seen,
    )  # fmt: skip
    return job(own, **{"changes": (change,), **more})


TABLE = Table(
    "RUN003",
    run003,
    lines={
        "ratio": ({"after": 1.10}, {"after": 1.0999}),
        "alike": ({"after": 1.40, "alike": True}, {"after": 1.3999, "alike": True}),
        "steps": ({"steps": (40.0, 40.0)}, {"steps": (200.0, 39.0)}),
        "seconds": ({"lasted": 8.0}, {"lasted": 7.9}),
    },
    false_alarms={
        "the machine's moods": {"after": 1.35, "alike": True, "number": None},
        "a job that is slower keeps fewer cores busy": {"after": 1.35, "alike": True, "seen": (IDLE,)},
        "too little came before": {"steps": (39.0, 200.0)},
        "a bump of little cost that is over": {"until": 300.0, "lost": 0.015},
        "nothing changed": {"changes": ()},
    },
    severities=(
        ({"after": 1.43}, "critical"),
        ({"after": 1.2}, "high"),
        ({"after": 1.12}, "medium"),
        ({"until": 300.0, "lost": 0.06}, "medium"),
    ),
    ranks=(1,),
    best=({"lost": 0.01}, warm(1.4)),
    step_s=1.4,
    also_fires={"all ranks slow down alike while a neighbour came": {"after": 1.2, "alike": True, "seen": (BUSY,)}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_run003_says_when_where_and_by_how_much() -> None:
    finding = found("RUN003", TABLE.job())
    assert finding.title == "Slowdown: 1.4× step time from step 200, on rank 1"
    assert finding.scope == Affected(ranks=(1,), since_step=200)
    assert finding.evidence[0].note == "since 3:32 (1.00 s before, over 200 steps)"
    assert "rank 1 does from step 200" in finding.fixes[0].title
    everywhere = found("RUN003", TABLE.job(number=None, until=500.0, lost=0.2))
    assert everywhere.scope.ranks == () and "until 8:20" in everywhere.evidence[0].note
    assert not would_explain(run003(), everywhere) and would_explain(run003(), finding) == {"COM002"}


def test_run003_promises_of_the_step_as_it_is_now_and_of_the_whole_run_once_it_is_over() -> None:
    lasting = found("RUN003", TABLE.job(lost=0.02)).saving
    assert lasting is not None and lasting.speedup == pytest.approx((1.4 / 1.2, 1.4 / (1 - 0.15 * 0.4 / 1.4)))
    over = found("RUN003", TABLE.job(until=500.0, lost=0.2)).saving
    assert over is not None and over.speedup == pytest.approx((1 / 0.9, 1 / (0.8 * (1 - 0.15 * 0.2))))


def test_run003_reports_the_costliest_change_and_mentions_the_others() -> None:
    small, large = run003(after=1.2).changes[0], run003(after=1.6).changes[0]
    finding = found("RUN003", run003(changes=(replace(small, step=90), large)))
    assert finding.scope.since_step == 200 and "1.6×" in finding.title
    assert finding.evidence[-1].metric == "another change" and "at step 90, on rank 1" in finding.evidence[-1].note


@pytest.mark.parametrize(
    ("metric", "scope", "values", "words"),
    [
        ("quota.throttled_s_per_s", "rank:1", (0.0, 0.6), "raise the CPU quota"),
        ("cpu.other_cores", "job", (0.1, 1.9), "keep 1.9 cores busy"),
        ("gpu.sm_clock_mhz", "gpu:3", (1980.0, 1200.0), "the clock of GPU 3 fell"),
    ],
)
def test_run003_advises_by_what_changed_at_that_time(
    metric: str, scope: str, values: tuple[float, float], words: str
) -> None:
    finding = found("RUN003", TABLE.job(seen=(Coincidence(metric, scope, *values, ""),)))
    assert words in finding.fixes[0].title and any(e.metric == metric for e in finding.evidence)


@pytest.mark.parametrize(
    ("phase", "words"), [("input_wait", "data loading"), ("gap", "after each step"), ("comm_exposed", "network")]
)
def test_run003_looks_where_the_time_went(phase: str, words: str) -> None:
    assert words in found("RUN003", TABLE.job(phase=phase)).fixes[0].title


@pytest.mark.parametrize("cause", ["CMP007", "CPU001", "CPU003", "GPU001", "DAT002"])
def test_run003_leaves_the_why_to_its_causes(cause: str) -> None:
    phase = "input_wait" if cause == "DAT002" else "forward"
    assert cause in would_be_explained_by(run003(phase=phase), found("RUN003", TABLE.job(phase=phase)))


def test_run003_is_less_severe_if_steps_may_be_longer_episodes() -> None:
    """Without a DataLoader the amount of work per step is unknown."""
    episodes = found("RUN003", TABLE.job(number=None, loaders=()))
    assert episodes.severity == "low" and any("episodes" in e.note for e in episodes.evidence)
    hotter = Coincidence("gpu.sm_clock_mhz", "gpu:3", 1980.0, 1200.0, "MHz")
    for explained in ({"seen": (hotter,)}, {"loaders": (loader(0, 2),)}, {"phase": "gap"}, {"number": 1}):
        other = found("RUN003", TABLE.job(**{"number": None, "loaders": (), **explained}))
        assert other.severity in ("high", "critical") and not any("episodes" in e.note for e in other.evidence)


def test_run003_is_only_a_note_if_the_job_has_more_work() -> None:
    (grown,) = run003(after=2.0).changes
    meant = replace(grown, work="35,130 parameters learn, 650 before", step=100, lost_share=0.4)
    finding = found("RUN003", TABLE.job(changes=(meant,)))
    assert finding.severity == "info" and finding.saving is None
    assert finding.fixes[0].title == "no fix is needed if this is intended: 35,130 parameters learn, 650 before"
    both = found("RUN003", TABLE.job(changes=(meant, grown)))
    assert both.severity == "critical" and both.scope.since_step == 200, "one with another reason comes first"
