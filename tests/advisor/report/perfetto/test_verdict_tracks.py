"""What the report says in the trace: verdict and findings with their gain and place, parts of the run, ends of processes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import FIRST_STEP_NS, SECOND, plan, recording, stall
from report_samples import bottleneck
from rn50_advisor.advisor.model.findings import Affected, Finding
from rn50_advisor.advisor.model.recording import Recording, happened
from rn50_advisor.advisor.model.report import Report, Segment
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.advisor.report.perfetto.verdict_tracks import AT_END, AT_INCIDENT, AT_ITS_STEP, VerdictTracks
from rn50_advisor.probes.documents.event_documents import NotedDeath, OomKill
from traced_runs import Event, events, named, of

STARTS = {0: {5: FIRST_STEP_NS + 5 * SECOND, 8: FIRST_STEP_NS + 8 * SECOND}, 1: {8: FIRST_STEP_NS + 9 * SECOND}}


def drawn(report: Report, made: Recording | None = None, left_out: tuple[str, ...] = ()) -> list[Event]:
    made = made or recording({0: plan(3)})
    book = TraceBook(FIRST_STEP_NS)
    tracks = VerdictTracks(book, made, report)
    tracks.add_run()
    tracks.add_findings(STARTS)
    book.left_out += left_out
    tracks.add_left_out()
    return named(events(book))


def test_each_finding_is_an_instant_with_all_that_the_report_says() -> None:
    report = bottleneck()
    found = of(drawn(report), "finding")
    assert [e["args"]["rule"] for e in found] == [f.rule for f in report.findings]
    assert {e["ph"] for e in found} == {"i"}
    first, worst = found[0], report.findings[0]
    assert first["thread"] == first["name"] == f"{worst.rule} {worst.title}"
    assert worst.saving is not None and worst.fixes[0].where is not None
    assert "×" in first["args"]["gain"]
    assert first["args"]["place in the code"] == f"{worst.fixes[0].where.file}:{worst.fixes[0].where.line}"
    assert len(first["args"]["evidence"]) == len(worst.evidence)
    assert " ".join(worst.fixes[0].change.split()) in first["args"]["fixes"][0]
    (verdict,) = of(drawn(report), "verdict")
    assert verdict["args"]["summary"] == report.verdict.summary


@pytest.mark.parametrize(
    ("given", "at_s", "place"),
    [
        ({}, None, AT_END),
        ({"scope": Affected(since_step=7)}, 8, AT_ITS_STEP),
        ({"scope": Affected(since_step=7, ranks=(1,))}, 9, AT_ITS_STEP),
        ({"scope": Affected(since_step=70)}, None, AT_END),
        ({"fatal": True}, 30, AT_INCIDENT),
    ],
)
def test_a_finding_stands_at_the_time_of_its_evidence(given: dict[str, object], at_s: float | None, place: str) -> None:
    made = recording({0: plan(3)}, events=(stall(20, {"rank": 0}),))
    finding = Finding("DAT003", "title", "high", 0.9, 0.1, **given)  # type: ignore[arg-type]
    (one,) = of(drawn(replace(bottleneck(), findings=(finding,)), made), "finding")
    end_s = (made.meta.last_ns - FIRST_STEP_NS) / 1e9
    assert one["ts"] / 1e6 == pytest.approx(end_s if at_s is None else at_s)
    assert one["args"]["place"] == place


def test_parts_of_the_run_have_a_thread_for_each_kind() -> None:
    parts = (
        Segment("warm-up", 0, 2, 0, 3),
        Segment("epoch", 2, 6, 0, 9, "epoch 0"),
        Segment("epoch", 6, 9, 10, 19, "epoch 1"),
        Segment("stall", 6.5, 7, label="no rank moved"),
    )
    found = of(drawn(replace(bottleneck(), segments=parts)), "segment")
    assert [(e["thread"], e["name"]) for e in found] == [
        ("warm-up", "warm-up"),
        ("epoch", "epoch 0"),
        ("epoch", "epoch 1"),
        ("stall", "stall"),
    ]
    assert found[2]["args"] == {"first step": 10, "last step": 19, "about": "epoch 1"}


def test_processes_that_did_not_end_well_are_incidents() -> None:
    at = FIRST_STEP_NS + SECOND
    deaths = [
        happened(NotedDeath, {"role": "rank", "signal": 9}, t_ns=at, pid=101, rank=1),
        happened(
            NotedDeath, {"role": "rank", "exit_code": 0, "clean_exit": True, "orderly": True}, t_ns=at, pid=100, rank=0
        ),
        happened(OomKill, {"role": "rank", "command": "python train.py"}, t_ns=at, pid=101),
    ]
    found = of(drawn(bottleneck(), recording({0: plan(3)}, events=tuple(deaths))), "incident")
    assert [(e["name"], e["args"].get("signal")) for e in found] == [
        ("rank 1 ended", "SIGKILL"),
        ("killed by the OOM killer", None),
    ]


def test_what_is_left_out_stands_in_the_trace_itself() -> None:
    (one,) = of(drawn(bottleneck(), left_out=("the first steps", "some readings")), "left out")
    assert one["args"] == {"1": "the first steps", "2": "some readings"}
    assert not of(drawn(bottleneck()), "left out")
