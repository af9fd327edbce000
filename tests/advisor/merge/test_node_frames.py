"""What a node sends of its run: small, true in its sums, the same steps from every rank, and read without trust."""

from __future__ import annotations

import json
import zlib
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merged_frames import frames_of
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Inbox, Unreadable, sent_recordings
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.merge.node_frames import (
    FRAME_BYTES_MAX,
    SENT_TABLES,
    UNPACKED_BYTES_MAX,
    VERSION,
    NotAFrame,
    packed,
    received_table,
    sent_tables,
    thinned,
    unpacked,
)
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.advisor.store.schema import RING_TABLES
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS

KIND_OF = {table: kind for kind, table in RING_TABLES.items()}


def rows_of(recording: Recording, table: str, rank: int) -> Any:
    found = getattr(recording, table)[rank]
    names = [name for name in SENT_TABLES[table] if name in found.dtype.names]
    assert names == list(SENT_TABLES[table])
    return np.stack([found[name] for name in names], axis=1)


def received(folder: Path, own: Recording) -> Recording:
    inbox = Inbox(folder)
    node = inbox.node_of("a sender")
    for kind, body in frames_of(own):
        inbox.put(node, kind, body)
    inbox.close()
    (found,) = sent_recordings(folder / INBOX_NAME)
    return found


def test_sums_over_all_steps_are_those_that_the_node_recorded(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400, forward=30 + rank) for rank in range(4)})
    found = received(tmp_path, own)
    assert sorted(found.steps) == [2, 3]
    for rank, rows in found.steps.items():
        assert rows["count"].sum() == 400
        for name in ("forward_ns", "backward_ns", "optimizer_ns"):
            assert rows[name].sum() == pytest.approx(own.steps[rank][name].sum(), rel=1e-4)  # microseconds, cut
        assert rows.size < 200


def test_blame_over_a_live_merge_names_the_rank_that_the_whole_recordings_name(tmp_path: Path) -> None:
    first, own = two_nodes({rank: plan(400, forward=60 if rank == 3 else 30) for rank in range(4)})
    live, whole = analyse(merge([first, received(tmp_path, own)])), analyse(merge([first, own]))
    assert max(live.by_rank("comm.late_share").items(), key=lambda item: item[1])[0] == 3
    assert live.value("comm.skew_s") == pytest.approx(whole.value("comm.skew_s"), rel=0.1)
    assert live.value("step.time_s") == pytest.approx(whole.value("step.time_s"), rel=0.02)
    assert live.nodes[1].clock == "collectives"


def test_the_state_of_a_node_arrives_whole(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(40) for rank in range(4)})
    found = received(tmp_path, own)
    assert [astuple(p)[:6] for p in found.processes] == [astuple(p)[:6] for p in own.processes]
    assert found.facts == own.facts
    assert (found.meta.host, found.meta.exit_code, found.meta.ended_ns) == ("b", 0, own.meta.ended_ns)
    assert found.samples["cpu.cores", "host"].value.tolist() == [8.0]


@pytest.mark.parametrize("step_ms", [1000, 100, 5])
def test_a_rank_takes_two_kilobytes_in_ten_seconds_whatever_its_pace(step_ms: int) -> None:
    random = np.random.default_rng(3)
    steps = 10_000 // step_ms
    noisy = {
        rank: [
            {"forward": 0.3 * step_ms + random.normal(0, 0.02 * step_ms), "backward": 0.6 * step_ms, "samples": 32}
            for _ in range(steps)
        ]
        for rank in range(2)
    }
    _, own = two_nodes(noisy)
    bodies = [body for kind, body in frames_of(own) if kind == "steps"]
    assert max(map(len, bodies)) <= 2048


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_ranks_whose_ten_seconds_end_a_step_apart_send_the_same_steps_side_by_side(shift: int) -> None:
    first, _ = two_nodes({rank: plan(300) for rank in range(2)})
    rows = rows_of(first, "steps", 0)
    one, other = thinned(rows[:100]), thinned(rows[shift : 100 + shift])
    alone = [set(part[part[:, -1] == 1][:, 0].tolist()) for part in (one, other)]
    assert len(alone[0] & alone[1]) >= 12 - shift


def test_few_steps_go_as_they_are() -> None:
    first, _ = two_nodes({rank: plan(12) for rank in range(2)})
    rows = rows_of(first, "steps", 0)
    assert np.array_equal(thinned(rows), rows)


def test_a_table_comes_back_as_it_was_sent_but_for_microseconds() -> None:
    first, _ = two_nodes({rank: plan(10) for rank in range(2)})
    for name in ("steps", "comm"):
        rows = rows_of(first, name, 0)
        sent = json.loads(json.dumps(sent_tables({"steps": rows_of(first, "steps", 0), name: rows})[name]))
        table = received_table(name, sent)
        for place, field in enumerate(SENT_TABLES[name]):
            assert np.abs(table[field] - rows[:, place]).max() <= (1000 if field.endswith("_ns") else 0), field


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        zlib.compress(b"[1, 2]"),
        zlib.compress(b'{"v": 99}'),
        zlib.compress(b"{"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(bytes(UNPACKED_BYTES_MAX + 1)),
        zlib.compress(b'{"v": 1}')[:-3],
    ],
    ids=["nothing", "a browser", "a list", "another version", "half", "deep", "a bomb", "cut off"],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(NotAFrame):
        unpacked(data)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"step": []},
        {"step": [1, 2], "flags": [1]},
        {"step": ["x"]},
        {"step": [None]},
        {"step": [1 << 80]},
        {"step": [[1], [2, 3]]},
        {"step": list(range(5000))},
    ],
)
def test_what_is_no_table_is_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(NotAFrame):
        received_table("comm", columns)


def test_frames_that_make_no_sense_leave_the_others_of_their_node_readable(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400) for rank in range(2)})
    inbox = Inbox(tmp_path)
    good, bad = inbox.node_of("good"), inbox.node_of("bad")
    wrong: list[dict[str, Any]] = [
        {"v": VERSION},
        {"v": VERSION, "t": "soon", "ranks": {}, "samples": {}, "positions": {}},
        {"v": VERSION, "t": 1, "ranks": {"0": {"steps": 7}}, "samples": {}, "positions": {}},
        {"v": VERSION, "t": 1, "ranks": [], "samples": {"a": {"b": "c"}}, "positions": {}},
    ]
    for kind, body in frames_of(own):
        inbox.put(good, kind, body)
    for frame in wrong:
        inbox.put(good, "steps", packed(frame))
        inbox.put(bad, "state", packed(frame))
    inbox.close()
    (found,) = sent_recordings(tmp_path / INBOX_NAME)
    assert found.steps[1]["count"].sum() == 400


def test_an_inbox_that_is_not_there_is_empty_and_a_damaged_one_says_so(tmp_path: Path) -> None:
    assert sent_recordings(tmp_path / INBOX_NAME) == []
    (tmp_path / INBOX_NAME).write_bytes(b"SQLite format 3\0" + bytes(4000))
    with pytest.raises(Unreadable):
        sent_recordings(tmp_path / INBOX_NAME)


def test_an_inbox_keeps_two_hours_of_a_node_and_its_number_when_it_comes_back(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    node = inbox.node_of("one")
    for _ in range(800):
        inbox.put(node, "steps", b"x")
    assert inbox.node_of("other") != node
    assert inbox.node_of("one") == node
    inbox.put(node, "steps", b"y")
    counted = "SELECT count(*), max(n) FROM frames WHERE node = ?"
    assert inbox._db.execute(counted, (node,)).fetchone() == (720, 801)
    inbox.close()


def test_an_outbox_that_nobody_empties_stays_small() -> None:
    outbox = Outbox()
    row = (0, tuple(range(len(STEP_FIELDS))))
    for _ in range(100):
        outbox.put_records(KIND_STEP, 0, [row] * 1000, None)
        outbox.put_event(Event(0, "stall", None, None, {"id": "x" * 100}))
    assert outbox.left_out == 80_000
    assert len(packed(outbox.steps_frame(0))) + len(packed(outbox.state_frame(0))) < FRAME_BYTES_MAX


def look(number: int, stalled_s: float, *, dump_bytes: int = 20_000) -> Event:
    """What is told of eight ranks that stand still, with stacks and dumps."""
    line = {
        "function": "all_reduce",
        "file": "/opt/python/site-packages/torch/distributed/distributed_c10d.py",
        "line": 9,
    }
    row = {
        "phase": "backward",
        "frames": [line] * 30,
        "user": line,
        "flight": [{"entries": ["x" * 100] * (dump_bytes // 104)}],
    }
    ranks = [{"rank": rank, "pid": 100 + rank, **row} for rank in range(8)]
    return Event(
        round(stalled_s * 1e9), "stall", None, None, {"id": f"stall-{number}", "stalled_s": stalled_s, "ranks": ranks}
    )


def test_of_a_hang_of_hours_the_last_two_looks_are_sent() -> None:
    outbox = Outbox()
    for number in range(400):
        outbox.put_event(look(1, 60.0 * number))
    frame = unpacked(packed(outbox.state_frame(0)))
    assert [row[4]["stalled_s"] for row in frame["events"]] == [60.0 * 398, 60.0 * 399]
    assert all(row["flight"] and len(row["frames"]) == 30 for event in frame["events"] for row in event[4]["ranks"])


@pytest.mark.parametrize("dump_bytes", [20_000, 1_000_000])
def test_however_often_and_with_how_much_to_tell_a_job_stands_still_a_frame_is_one_that_is_taken(
    dump_bytes: int,
) -> None:
    outbox = Outbox()
    for number in range(40):
        for stalled_s in (15.0, 17.5, 25.0):
            outbox.put_event(look(number, stalled_s, dump_bytes=dump_bytes))
    body = packed(outbox.state_frame(0))
    assert len(body) < FRAME_BYTES_MAX
    events = unpacked(body)["events"]
    assert len(events) == 64 and events[-1][4]["ranks"][7]["user"]["function"] == "all_reduce"
    assert bool(events[-1][4]["ranks"][7].get("flight")) == (dump_bytes < 100_000), "the latest first"
    assert "flight" not in events[0][4]["ranks"][0] and "frames" not in events[0][4]["ranks"][0]


def test_of_the_hosts_readings_only_what_the_other_side_shows_is_sent() -> None:
    outbox = Outbox()
    _, own = two_nodes({rank: plan(3) for rank in range(2)})
    outbox.put_process(own.processes[0])
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
    outbox.put_samples([Sample(metric, scope, 1.0) for metric, scope in sent | kept])
    outbox.put_samples([Sample("mem.total_bytes", "host", float("nan"))])
    told = outbox.steps_frame(0)["samples"]
    assert {(metric, scope) for metric, scopes in told.items() for scope in scopes} == sent


def test_secrets_are_masked_before_anything_is_sent() -> None:
    outbox = Outbox()
    _, own = two_nodes({rank: plan(3) for rank in range(2)})
    outbox.put_process(own.processes[0])
    outbox.put_meta({"argv": ["train.py", "--api-key=abcdef123456"], "environment": {"variables": {"HF_TOKEN": "abc"}}})
    outbox.put_facts(own.processes[0].pid, {"argv": ["--password=hunter22hunter22"]})
    text = json.dumps(outbox.state_frame(0))
    assert "abcdef123456" not in text and "hunter22hunter22" not in text and '"abc"' not in text
