"""A live merge shows the same job as the nodes' run files do afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from flight_entries import upto
from merged_frames import receive, write_run
from nodes import APART_NS, two_nodes
from recordings import SECOND, plan, stall
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Event, Process, Recording, Series
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.rules.communication.comm_cost import path_is_sound

MODEL = {"world_size": 4, "backend_name": "gloo", "total_parameter_size_bytes": 100_000_000, "bucket_bytes": [25e6] * 4}


def both(first: Recording, own: Recording, folder: Path) -> tuple[Analysis, Analysis]:
    """The job by the second node's run file, and by what that node sent while it was written."""
    (sent,) = receive(folder, write_run(folder / "run", own))
    return analyse(merge([first, read_recording(folder / "run")])), analyse(merge([first, sent]))


def slow_on_the_second() -> list[Recording]:
    nodes = two_nodes({rank: plan(300, forward=60 if rank == 3 else 30) for rank in range(4)}, wire_ms=20)
    return [replace(own, facts={pid: {**facts, "ddp": [MODEL]} for pid, facts in own.facts.items()}) for own in nodes]


def counter(own: Recording, per_s: float) -> Series:
    t_ns = np.array([own.meta.started_ns, own.meta.last_ns], np.int64)
    return Series(t_ns, np.array([0.0, per_s * (own.meta.last_ns - own.meta.started_ns) / 1e9]))


def level(own: Recording, value: float) -> Series:
    return Series(np.array([own.meta.started_ns, own.meta.last_ns], np.int64), np.array([value, value]))


def test_what_lies_between_the_ranks_is_known_where_the_critical_node_is_another(tmp_path: Path) -> None:
    first, own = slow_on_the_second()
    cards = {
        ("net.speed_mbps", "net:eth0"): level(own, 10_000.0),
        ("net.rx_bytes", "net:eth0"): counter(own, 1e9),
        ("net.tx_bytes", "net:eth0"): counter(own, 1e3),
        ("net.speed_mbps", "net:eth1"): level(own, 100_000.0),
        ("net.rx_bytes", "net:eth1"): counter(own, 1e3),
        ("net.tx_bytes", "net:eth1"): counter(own, 1e5),
    }
    kept, sent = both(first, replace(own, samples=cards), tmp_path)
    assert kept.host is not None and kept.host.name == "b"
    assert kept.get("net.gbit_per_s") == sent.get("net.gbit_per_s") == 10.0
    assert path_is_sound(kept) is path_is_sound(sent) is not None


def test_the_rank_that_was_late_when_the_watchdogs_gave_up_is_named(tmp_path: Path) -> None:
    def aborted(process: Process, own: Recording) -> Process:
        return replace(process, ended_ns=own.meta.last_ns, exit_signal=6, clean_exit=False)

    first, own = (
        replace(r, processes=tuple(aborted(p, r) for p in r.processes), meta=replace(r.meta, exit_code=1))
        for r in slow_on_the_second()
    )
    dumps = {rank: upto(56 if rank == 3 else 57)[0] for rank in range(4)}
    first = replace(first, events=(flight(first, {"0": dumps[0], "1": dumps[1]}),))
    own = replace(own, events=(flight(own, {"2": dumps[2], "3": dumps[3]}),))
    kept, sent = both(first, own, tmp_path)
    assert kept.failure is not None and (kept.failure.kind, kept.failure.rank) == ("watchdog", 3)
    assert sent.failure == kept.failure
    assert [(d.rank, d.signal, d.step) for d in sent.deaths] == [(d.rank, d.signal, d.step) for d in kept.deaths]


def flight(own: Recording, dumps: dict[str, object]) -> Event:
    return Event(own.meta.last_ns, "flight", None, None, {"ranks": dumps})


def test_a_hang_is_the_same_one_after_many_reports(tmp_path: Path) -> None:
    first, own = slow_on_the_second()
    line = {"file": "/job/train.py", "line": 33, "function": "find_batch"}
    frames = [{"file": f"/lib/part{n}.py", "line": n, "function": "go"} for n in range(3)]
    asleep = {"rank": 3, "phase": "gap", "state": "S", "wchan": "hrtimer_nanosleep", "cpu_s": 5.0}
    ranks = [{"rank": 2, "phase": "backward"}, {**asleep, "user": line, "frames": [line, *frames]}]
    reports = [stall(15.0 + 10 * n, *ranks) for n in range(20)]
    began_ns = reports[0].t_ns - 15 * SECOND
    events = []
    for event in reports:
        rows = [{**row, "since_ns": began_ns - APART_NS} for row in event.data["ranks"]]
        events.append(replace(event, t_ns=event.t_ns - APART_NS, data={**event.data, "ranks": rows}))
    kept, sent = both(first, replace(own, events=tuple(events)), tmp_path)
    found = [
        [(r.rank, r.culprit, r.halted, r.frames, round(r.since_s, 2)) for stalled in made.stalls for r in stalled.ranks]
        for made in (kept, sent)
    ]
    assert found[0] == found[1] and found[0][1][:3] == (3, True, "asleep")
