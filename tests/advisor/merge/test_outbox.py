"""What a node has not sent yet stays small and keeps what tells."""

from __future__ import annotations

import json

import pytest

from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge.node_frames import (
    FRAME_BYTES_MAX,
    packed,
    unpacked,
)
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.probes.rank.layout import KIND_STEP, STEP_FIELDS


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
