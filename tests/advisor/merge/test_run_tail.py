"""What a node sends of its run file stays small, and holds what the other side needs."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge import run_tail
from rn50_advisor.advisor.merge.node_frames import FRAME_BYTES_MAX, StateFrame, packed, unpacked
from rn50_advisor.advisor.merge.run_tail import RunTail
from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import Event, Process
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[RunWriter]:
    with contextlib.closing(RunWriter.create(tmp_path / "run", meta={"name": "x"})) as made:
        yield made


@pytest.fixture
def tail(writer: RunWriter) -> Iterator[RunTail]:
    with contextlib.closing(RunTail(writer.folder)) as made:
        yield made


def put_steps(writer: RunWriter, first: int, count: int, rank: int = 0) -> None:
    names = {name: place for place, name in enumerate(STEP_FIELDS)}
    rows = []
    for step in range(first, first + count):
        row = [0] * len(STEP_FIELDS)
        row[names["step"]], row[names["t_start_ns"]], row[names["t_end_ns"]] = step, step * 1000, step * 1000 + 900
        rows.append((0, tuple(row)))
    writer.put_records(KIND_STEP, rank, rows)
    writer.commit()


def sent_steps(tail: RunTail) -> int:
    """Number of steps in the next frame."""
    tables = tail.steps_frame(0).ranks.get(0, {})
    return sum(tables["steps"]["count"]) if tables else 0


def test_each_frame_goes_on_where_the_last_one_ended(writer: RunWriter, tail: RunTail) -> None:
    put_steps(writer, 0, 20)
    assert [sent_steps(tail), sent_steps(tail)] == [20, 0]
    put_steps(writer, 20, 5)
    assert sent_steps(tail) == 5


def test_a_long_outage_makes_several_frames_and_loses_nothing(
    writer: RunWriter, tail: RunTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tail, "_ROWS_MAX", 200)
    put_steps(writer, 0, 500)
    assert [(sent_steps(tail), tail.has_more_rows) for _ in range(3)] == [(200, True), (200, True), (100, False)]


def test_of_very_many_processes_and_gaps_those_that_matter_are_sent(writer: RunWriter, tail: RunTail) -> None:
    writer.put_process(Process(1, "rank", 0, 0, None, 0, "train", 0))
    for number in range(600):
        writer.put_process(Process(10 + number, "worker", 0, None, number, 1, "train", 1 + number, ended_ns=1000))
        writer.put_gap(ProbeGap("metric", str(number), "reason"))
    writer.put_process(Process(9, "other", None, None, None, 0, "sh", 0))
    writer.commit()
    frame = tail.state_frame(0)
    assert len(frame.processes) == 512 and len(frame.gaps) == 64
    assert frame.processes[0][:2] == (1, "rank") and frame.processes[-1][0] == 609


def put_event(writer: RunWriter, event: Event) -> None:
    writer.put_event(event)
    writer.commit()


def test_an_event_is_news_until_a_state_holds_it(writer: RunWriter, tail: RunTail) -> None:
    assert not tail.has_news()
    put_event(writer, Event(0, "death", 1, 0, {"role": "rank"}))
    put_event(writer, Event(0, "profile", 1, 0, {}))
    assert tail.has_news() and tail.has_news()
    assert [row[1] for row in tail.state_frame(0).events] == ["death"]
    assert not tail.has_news()


def stall_report(number: int, stalled_s: float) -> Event:
    """A report of eight ranks that are stalled, with stacks and dumps."""
    line = {
        "function": "all_reduce",
        "file": "/opt/python/site-packages/torch/distributed/distributed_c10d.py",
        "line": 9,
    }
    row = {
        "phase": "backward",
        "frames": [line] * 30,
        "user": line,
        "flight": [{"entries": ["x" * 100] * 200}],
    }
    ranks = [{"rank": rank, "pid": 100 + rank, **row} for rank in range(8)]
    return Event(
        round(stalled_s * 1e9), "stall", None, None, {"id": f"stall-{number}", "stalled_s": stalled_s, "ranks": ranks}
    )


def test_of_a_hang_of_hours_the_last_two_reports_are_sent(writer: RunWriter, tail: RunTail) -> None:
    for number in range(100):
        writer.put_event(stall_report(1, 60.0 * number))
    writer.commit()
    frame = tail.state_frame(0)
    assert [row[4]["stalled_s"] for row in frame.events] == [60.0 * 98, 60.0 * 99]
    assert all(row["flight"] and len(row["frames"]) == 30 for event in frame.events for row in event[4]["ranks"])


def test_many_stalls_with_large_dumps_make_a_frame_that_the_other_side_accepts(
    writer: RunWriter, tail: RunTail
) -> None:
    put_event(writer, Event(0, "death", 1, 0, {"role": "rank"}))
    for number in range(40):
        put_event(writer, stall_report(number, 17.5))
    body = packed(tail.state_frame(0))
    assert len(body) < FRAME_BYTES_MAX
    first, *stalls = unpacked(body, StateFrame).events
    assert first[1] == "death" and 10 < len(stalls) < 40
    assert stalls[-1][4]["id"] == "stall-39" and stalls[-1][4]["ranks"][7]["flight"], "the latest fit first"


def test_only_the_samples_that_the_other_side_shows_are_sent(writer: RunWriter, tail: RunTail) -> None:
    writer.put_process(two_nodes({rank: plan(3) for rank in range(2)})[1].processes[0])
    sent = {
        ("cpu.busy_s", "host"),
        ("disk.busy_s", "disk:sda"),
        ("cgroup.throttled_s", "pid:100"),
        ("gpu.temp_c", "gpu:0"),
    }
    kept = {
        ("cpu.busy_s", "cpu:3"),
        ("disk.queue_s", "disk:sda"),
        ("proc.cpu_s", "pid:100"),
        ("cgroup.periods", "pid:7"),
    }
    for value in (1.0, 2.0):
        writer.put_samples(0, [Sample(metric, scope, value) for metric, scope in sent | kept])
    writer.put_samples(0, [Sample("mem.total_bytes", "host", float("nan"))])
    writer.commit()
    found = tail.steps_frame(0).samples
    assert {(metric, scope): value for metric, scopes in found.items() for scope, value in scopes.items()} == (
        dict.fromkeys(sent, 2.0)
    )
    assert not tail.steps_frame(0).samples


def test_secrets_are_masked_before_anything_is_sent(writer: RunWriter, tail: RunTail) -> None:
    process = two_nodes({rank: plan(3) for rank in range(2)})[1].processes[0]
    writer.put_process(process)
    writer.put_meta(argv=["train.py", "--api-key=abcdef123456"], environment={"variables": {"HF_TOKEN": "abc"}})
    writer.put_facts(process.pid, {"argv": ["--password=hunter22hunter22"]})
    writer.put_gap(ProbeGap("x", "job", "reason", "curl --password=hunter22hunter22"))
    put_event(writer, Event(0, "death", 1, 0, {"error": "--password=hunter22hunter22"}))
    text = zlib.decompress(packed(tail.state_frame(0))).decode()
    assert "abcdef123456" not in text and "hunter22hunter22" not in text and '"abc"' not in text
