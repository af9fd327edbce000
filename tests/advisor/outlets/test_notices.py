"""What is news of a run: each event once, in one line, and nothing that a report does not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reading_samples import AT_UNIX_S, STARTED_UNIX_S, ended, reading
from report_samples import HOSTILE, running
from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.outlets.notices import NOTICES_MAX, NoticeBook, document, line
from rn50_advisor.advisor.outlets.outlet import RunReading

HANG = Finding(
    "RUN001",
    "The job hangs: rank 1 is stuck in forward (/job/train.py:88)",
    "critical",
    0.95,
    0.0,
    Affected(ranks=(1,), since_step=40),
    (Evidence("stalled", 70.0, "s", 60.0, "no progress", "explains"),),
    (Fix("look", "", Where("/job/train.py", 88)),),
    fatal=True,
)
DEATH = replace(HANG, rule="RUN002", title="Rank 0 was killed by SIGKILL: out of memory", evidence=())
SLOWER = Finding("RUN003", "Slowdown: 1.8× step time from step 400", "high", 0.9, 0.1, Affected(since_step=400))


def of(*findings: Finding, base: RunReading | None = None, at_s: float = 0.0) -> RunReading:
    made = base or reading(running())
    report = replace(made.report, findings=findings, environment={"cwd": "/job"})
    return replace(made, report=report, at_unix_s=AT_UNIX_S + at_s)


def told(book: NoticeBook, given: RunReading) -> list[str]:
    found = book.news(given)
    for notice in found:
        book.told(notice, given)
    return [notice.event for notice in found]


def test_a_job_that_trains_well_is_no_news() -> None:
    assert told(NoticeBook(), of()) == told(NoticeBook(), replace(ended(0), is_last=True)) == []


def test_a_hang_is_told_once_and_so_is_its_end() -> None:
    book = NoticeBook()
    resumed = replace(HANG, title="No progress for 90 s, then the job went on", severity="low", fatal=False)
    assert [told(book, given) for given in (of(HANG), of(HANG, at_s=60), of(resumed), of(resumed))] == [
        ["hang"],
        [],
        ["resumed"],
        [],
    ]
    assert told(book, of(HANG)) == ["hang"], "another one"


def test_a_rank_that_blocks_the_others_early_is_a_hang_and_a_past_one_is_not() -> None:
    early = replace(HANG, fatal=False, urgent=True)
    assert told(NoticeBook(), of(early)) == ["hang"]
    assert told(NoticeBook(), of(replace(HANG, fatal=False, severity="low"))) == []


def test_a_notice_that_was_not_delivered_is_news_again() -> None:
    book = NoticeBook()
    assert [notice.event for _ in range(2) for notice in book.news(of(HANG))] == ["hang", "hang"]


@pytest.mark.parametrize(
    ("end", "events"),
    [
        (ended(1), ["died"]),
        (ended(None, "SIGKILL"), ["died"]),
        (ended(143), ["died"]),
        (ended(0), []),
        (ended(None), []),
        (ended(130), []),
        (ended(None, "SIGINT"), []),
    ],
)
def test_an_end_that_nobody_asked_for_is_news(end: RunReading, events: list[str]) -> None:
    assert told(NoticeBook(), end) == events


def ended_after(seconds: float) -> RunReading:
    made = ended(1)
    job = replace(made.report.job, duration_s=AT_UNIX_S - STARTED_UNIX_S + seconds)
    return replace(made, report=replace(made.report, job=job), at_unix_s=AT_UNIX_S + seconds)


def test_a_ranks_death_and_the_end_that_follows_are_one_event() -> None:
    book = NoticeBook()
    given = [of(DEATH), of(DEATH), of(DEATH, base=ended_after(20)), ended_after(20)]
    assert [told(book, each) for each in given] == [["died"], [], [], []]


def test_the_end_of_a_job_that_went_on_after_a_ranks_death_is_news() -> None:
    book = NoticeBook()
    assert [told(book, each) for each in (of(DEATH), ended_after(600), ended_after(600))] == [["died"], ["died"], []]


def test_a_slowdown_is_told_once_though_its_first_step_moves_and_a_later_one_again() -> None:
    book = NoticeBook()
    steps = [told(book, of(replace(SLOWER, scope=Affected(since_step=step)))) for step in (400, 430, 370, 2000)]
    assert steps == [["slower"], [], [], ["slower"]]


@pytest.mark.parametrize("severity", ["low", "info"])
def test_a_slowdown_that_may_be_more_work_wakes_nobody(severity: Any) -> None:
    assert told(NoticeBook(), of(replace(SLOWER, severity=severity))) == []


def test_a_run_has_a_bound() -> None:
    book = NoticeBook()
    events = [event for n in range(100) for event in told(book, of(*(HANG,) * (n % 2 == 0), SLOWER))]
    assert len(events) == NOTICES_MAX


def test_the_line_says_who_what_since_when_and_how_to_look() -> None:
    (notice,) = NoticeBook().news(of(HANG))
    name = running().job.name
    assert line(notice, of(HANG), "/runs/r") == (
        f"{name} on node0: The job hangs: rank 1 is stuck in forward (train.py:88) (RUN001) · since 22:13:50 UTC"
        " · rn50-advisor watch /runs/r"
    )
    (died,) = NoticeBook().news(ended(3))
    assert "The job ended: exit code 3 after" in line(died, ended(3), "/runs/r")
    assert line(died, ended(3), "/runs/r").endswith("rn50-advisor report /runs/r")
    assert line(died, ended(3), "/my runs/$(r)").endswith("rn50-advisor report '/my runs/$(r)'")


def test_a_place_that_the_title_leaves_out_is_added() -> None:
    (notice,) = NoticeBook().news(of(DEATH))
    assert " · at train.py:88 · " in line(notice, of(DEATH), "/runs/r")


def test_programs_get_the_parts() -> None:
    (notice,) = NoticeBook().news(of(HANG))
    made = document(notice, of(HANG), "/runs/r")
    assert made["event"] == "hang" and made["rule"] == "RUN001" and made["ranks"] == [1]
    assert made["place"] == {"file": "train.py", "line": 88} and made["since_unix_s"] == AT_UNIX_S - 70
    assert made["run"] == of(HANG).run and made["folder"] == "/runs/r"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_title_stays_one_short_line(text: str) -> None:
    given = of(replace(HANG, title=text))
    (notice,) = NoticeBook().news(given)
    made = document(notice, given, "/runs/r")
    assert made["text"].isprintable() and len(made["text"]) <= 1000 and len(made["title"]) <= 300
