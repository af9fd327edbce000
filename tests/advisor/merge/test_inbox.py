"""What other nodes sent, kept and read beside the run."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from merged_frames import frames_of, received
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Inbox, Unreadable, sent_recordings
from rn50_advisor.advisor.merge.node_frames import (
    VERSION,
    packed,
)


def test_sums_over_all_steps_are_those_that_the_node_recorded(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400, forward=30 + rank) for rank in range(4)})
    found = received(tmp_path, own)
    assert sorted(found.steps) == [2, 3]
    for rank, rows in found.steps.items():
        assert rows["count"].sum() == 400
        for name in ("forward_ns", "backward_ns", "optimizer_ns"):
            assert rows[name].sum() == pytest.approx(own.steps[rank][name].sum(), rel=1e-4)  # microseconds, cut
        assert rows.size < 200


def test_the_state_of_a_node_arrives_whole(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(40) for rank in range(4)})
    found = received(tmp_path, own)
    assert [astuple(p)[:6] for p in found.processes] == [astuple(p)[:6] for p in own.processes]
    assert found.facts == own.facts
    assert (found.meta.host, found.meta.exit_code, found.meta.ended_ns) == ("b", 0, own.meta.ended_ns)
    assert found.samples["cpu.cores", "host"].value.tolist() == [8.0]


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
