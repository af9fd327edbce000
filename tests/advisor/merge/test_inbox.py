"""Frames of other nodes, kept and read beside the run."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from merged_frames import receive, write_run
from nodes import two_nodes, with_host_samples
from recordings import plan
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Inbox, Unreadable, sent_recordings


def test_sums_over_all_steps_are_those_that_the_node_recorded(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400, forward=30 + rank) for rank in range(4)})
    (found,) = receive(tmp_path, write_run(tmp_path / "run", own))
    assert sorted(found.steps) == [2, 3]
    for rank, rows in found.steps.items():
        assert rows["count"].sum() == 400
        for name in ("forward_ns", "backward_ns", "optimizer_ns"):
            assert rows[name].sum() == pytest.approx(own.steps[rank][name].sum(), rel=1e-4)  # microseconds, cut
        assert rows.size < 200


def test_the_state_of_a_node_arrives_whole(tmp_path: Path) -> None:
    own = with_host_samples(two_nodes({rank: plan(40) for rank in range(4)})[1], cpu__cores=8)
    (found,) = receive(tmp_path, write_run(tmp_path / "run", own))
    assert [astuple(p) for p in found.processes] == [astuple(p) for p in own.processes]
    assert found.facts == own.facts
    assert (found.meta.host, found.meta.exit_code, found.meta.ended_ns) == ("b", 0, own.meta.ended_ns)
    assert found.samples["cpu.cores", "host"].value.tolist() == [8.0]


def state(**given: Any) -> dict[str, Any]:
    meta = {"started_unix_s": 0.0, "started_ns": 1, "last_ns": 1, **given.pop("meta", {})}
    return {"v": 1, "t": 1, "meta": meta, "facts": {}, "events": [], "gaps": [], "processes": [], **given}


def test_invalid_frames_are_skipped_and_the_others_read(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400) for rank in range(2)})
    wrong: list[dict[str, Any]] = [
        {"v": 1},
        {"v": 1, "t": "soon", "ranks": {}, "samples": {}, "positions": {}},
        {"v": 1, "t": 1, "ranks": {"0": {"steps": 7}}, "samples": {}, "positions": {}},
        {"v": 1, "t": 1, "ranks": {"0": {"steps": {"count": [-1]}}}, "samples": {}, "positions": {}},
        {"v": 1, "t": 1, "ranks": [], "samples": {"a": {"b": "c"}}, "positions": {}},
        state(processes=[[1]]),
        state(meta={"environment": []}),
        state(meta={"started_ns": 1 << 80}),
        state(meta={"argv": [1]}),
        state(gaps=[["metric"]]),
    ]
    bodies = [zlib.compress(json.dumps(frame).encode()) for frame in wrong]
    good = [*write_run(tmp_path / "run", own), *(("steps", body) for body in bodies)]
    (found,) = receive(tmp_path, good, [("state", body) for body in bodies])
    assert found.steps[1]["count"].sum() == 400


def test_a_missing_inbox_is_empty_and_a_damaged_one_is_reported(tmp_path: Path) -> None:
    assert sent_recordings(tmp_path / INBOX_NAME) == []
    (tmp_path / INBOX_NAME).write_bytes(b"SQLite format 3\0" + bytes(4000))
    with pytest.raises(Unreadable):
        sent_recordings(tmp_path / INBOX_NAME)


def test_a_body_that_is_not_binary_is_ignored(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.put("one", "state", "text")  # type: ignore[arg-type]
    inbox.close()
    assert sent_recordings(tmp_path / INBOX_NAME) == []


def test_an_inbox_keeps_two_hours_of_each_node(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    for number in range(800):
        inbox.put("one", "steps", b"%d" % number)
    inbox.put("other", "steps", b"x")
    inbox.put("one", "steps", b"800")
    inbox.close()
    with contextlib.closing(sqlite3.connect(tmp_path / INBOX_NAME)) as db:
        rows = db.execute("SELECT who, count(*), max(n) FROM frames JOIN nodes USING (node) GROUP BY who")
        assert rows.fetchall() == [("one", 720, 801), ("other", 1, 1)]
