"""The frames of a node: small, with exact sums and the same steps from every rank, and checked when they are read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from merged_frames import receive, write_run
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.merge.node_frames import (
    SENT_TABLES,
    UNPACKED_BYTES_MAX,
    NotAFrame,
    StepsFrame,
    received_rows,
    sent_tables,
    thinned,
    unpacked,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.schema import RING_TABLES

KIND_OF = {table: kind for kind, table in RING_TABLES.items()}


def rows_of(recording: Recording, table: str, rank: int) -> Any:
    found = getattr(recording, table)[rank]
    names = [name for name in SENT_TABLES[table] if name in found.dtype.names]
    assert names == list(SENT_TABLES[table])
    return np.stack([found[name] for name in names], axis=1)


def test_blame_over_a_live_merge_names_the_rank_that_the_whole_recordings_name(tmp_path: Path) -> None:
    first, own = two_nodes({rank: plan(400, forward=60 if rank == 3 else 30) for rank in range(4)})
    (sent,) = receive(tmp_path, write_run(tmp_path / "run", own))
    live, whole = analyse(merge([first, sent])), analyse(merge([first, own]))
    assert max(live.by_rank("comm.late_share").items(), key=lambda item: item[1])[0] == 3
    assert live.value("comm.skew_s") == pytest.approx(whole.value("comm.skew_s"), rel=0.1)
    assert live.value("step.time_s") == pytest.approx(whole.value("step.time_s"), rel=0.02)
    assert live.nodes[1].clock == "collectives"


@pytest.mark.parametrize("step_ms", [1000, 100, 5])
def test_a_rank_takes_two_kilobytes_in_ten_seconds_whatever_its_pace(step_ms: int, tmp_path: Path) -> None:
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
    bodies = [body for kind, body in write_run(tmp_path / "run", own) if kind == "steps"]
    assert max(map(len, bodies)) <= 2048


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_ranks_whose_ten_seconds_end_a_step_apart_send_the_same_steps_side_by_side(shift: int) -> None:
    first, _ = two_nodes({rank: plan(300) for rank in range(2)})
    rows = rows_of(first, "steps", 0)
    one, other = thinned(rows[:100]), thinned(rows[shift : 100 + shift])
    alone = [set(part[part[:, -1] == 1][:, 0].tolist()) for part in (one, other)]
    assert len(alone[0] & alone[1]) >= 12 - shift


def test_few_steps_stay_unfolded() -> None:
    first, _ = two_nodes({rank: plan(12) for rank in range(2)})
    rows = rows_of(first, "steps", 0)
    assert np.array_equal(thinned(rows), rows)


def test_a_table_survives_the_wire_up_to_a_microsecond() -> None:
    first, _ = two_nodes({rank: plan(10) for rank in range(2)})
    for name in ("steps", "comm"):
        rows = rows_of(first, name, 0)
        sent = json.loads(json.dumps(sent_tables({"steps": rows_of(first, "steps", 0), name: rows})[name]))
        found = received_rows(name, 0, sent)
        for place, field in enumerate(SENT_TABLES[name]):
            assert np.abs(found[:, place] - rows[:, place]).max() <= (1000 if field.endswith("_ns") else 0), field


def framed(**given: Any) -> bytes:
    return zlib.compress(json.dumps({"v": 1, "t": 1, "ranks": {}, "samples": {}, "positions": {}, **given}).encode())


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
        framed()[:-3],
        *(framed(ranks={"0": {"comm": {"step": [value]}}}) for value in ("x", None, 1 << 80, [1])),
        framed(samples={"cpu.cores": {"host": "many"}}),
        framed(positions={"0": ["forward"]}),
        framed(positions={"-1": ["forward", 1, 1]}),
    ],
)
def test_data_that_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(NotAFrame):
        unpacked(data, StepsFrame)


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"step": []},
        {"step": [1, 2], "flags": [1]},
        {"step": list(range(5000))},
        {"step": [1 << 62]},
    ],
)
def test_columns_that_are_no_table_are_refused(columns: dict[str, Any]) -> None:
    with pytest.raises(NotAFrame):
        received_rows("comm", 0, columns)
