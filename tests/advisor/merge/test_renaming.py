"""One node's recording in terms of the whole job: times on the first node's clock, and names that no other node has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import SECOND, plan, recording, stall, stall_end
from rn50_advisor.advisor.merge.renaming import Renaming
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import NODE_PIDS, Clock, Event, Process, Recording, Series

LATER_NS = 100 * SECOND
CLOCK = Clock("wall clocks", LATER_NS, 0.0, 0, 0)


def node(ranks: int = 2, **given: Any) -> Recording:
    return replace(recording({rank: plan(3) for rank in range(ranks)}), **given)


@pytest.mark.parametrize(
    ("scope", "renamed"),
    [
        ("host", "host"),
        ("job", "job"),
        ("", ""),
        ("pid:7", f"pid:{7 + NODE_PIDS}"),
        ("pid:x", "pid:x"),
        ("gpu:0", "gpu:8"),
        ("gpu:15", "gpu:23"),
        ("mig:1/0", "mig:9/0"),
        ("gpu:x", "gpu:x"),
        ("disk:nvme0n1", "disk:nvme0n1"),
    ],
)
def test_only_scopes_that_are_counted_per_host_are_renamed(scope: str, renamed: str) -> None:
    assert Renaming(1, CLOCK, first_gpu=8).scope(scope) == renamed
    assert Renaming(0, Clock()).scope(scope) == scope


def test_the_first_node_stays_as_it_is() -> None:
    own = node(events=(Event(5, "death", 100, 0, {"role": "rank"}),))
    found = Renaming(0, Clock()).recording(own)
    assert (found.meta, found.processes, found.facts, found.events) == (
        own.meta,
        own.processes,
        own.facts,
        own.events,
    )
    assert all((found.steps[rank] == rows).all() for rank, rows in own.steps.items())


def test_times_are_those_of_the_first_nodes_clock() -> None:
    own = node()
    own = replace(
        own,
        meta=replace(own.meta, ended_ns=7, recording_stopped_ns=8, left_out_until_ns=9),
        samples={("cpu.load1", "host"): Series(np.array([3, 4], np.int64), np.array([1.0, 2.0]))},
        positions={0: ("forward", 2, 11)},
    )
    found, meta = Renaming(1, CLOCK).recording(own), own.meta
    assert (found.meta.started_ns, found.meta.last_ns) == (meta.started_ns + LATER_NS, meta.last_ns + LATER_NS)
    assert (found.meta.ended_ns, found.meta.recording_stopped_ns) == (7 + LATER_NS, 8 + LATER_NS)
    assert found.meta.left_out_until_ns == 9 + LATER_NS
    for rank, rows in own.steps.items():
        moved = found.steps[rank]
        for name in rows.dtype.names or ():
            late = LATER_NS if name in ("t_start_ns", "t_end_ns") else 0
            assert (moved[name] == rows[name] + late).all(), name
    assert found.samples["cpu.load1", "host"].t_ns.tolist() == [3 + LATER_NS, 4 + LATER_NS]
    assert found.positions == {0: ("forward", 2, 11 + LATER_NS)}


def test_a_clock_that_drifts_moves_later_times_farther() -> None:
    renaming = Renaming(1, Clock("collectives", 1000, 1e-4, 5 * SECOND, 0))
    assert renaming.t(5 * SECOND) == 5 * SECOND + 1000
    assert renaming.t(15 * SECOND) == 15 * SECOND + 1000 + 10**6


def test_pids_and_ranks_are_renamed_everywhere() -> None:
    worker = Process(200, "worker", 1, None, 0, 101, "python", 5, ended_ns=9)
    launcher = Process(50, "other", None, None, None, 1, "torchrun", 4)
    own = node()
    own = replace(own, processes=(*own.processes, worker, launcher), gaps=(ProbeGap("gpu.*", "gpu:0", "lost", "hint"),))
    found = Renaming(2, CLOCK, first_gpu=4, ranks={0: 2, 1: 3}).recording(own)
    assert sorted(found.steps) == [2, 3]
    by_pid = {process.pid: process for process in found.processes}
    assert set(by_pid) == {process.pid + 2 * NODE_PIDS for process in own.processes}
    moved = by_pid[200 + 2 * NODE_PIDS]
    assert (moved.rank, moved.parent_pid, moved.worker) == (3, 101 + 2 * NODE_PIDS, 0)
    assert (moved.first_seen_ns, moved.ended_ns) == (5 + LATER_NS, 9 + LATER_NS)
    other = by_pid[50 + 2 * NODE_PIDS]
    assert (other.rank, other.ended_ns) == (None, None)
    assert set(found.facts) == {pid + 2 * NODE_PIDS for pid in own.facts}
    assert found.gaps == (ProbeGap("gpu.*", "gpu:4", "lost", "hint"),)


def test_batches_are_those_of_the_renamed_workers() -> None:
    batches = np.array([(5, 9, 200)], [("t_start_ns", np.int64), ("t_end_ns", np.int64), ("pid", np.int64)])
    found = Renaming(1, CLOCK, ranks={0: 2}).recording(node(batches={0: batches}))
    assert found.batches[2].tolist() == [(5 + LATER_NS, 9 + LATER_NS, 200 + NODE_PIDS)]
    assert batches["pid"].tolist() == [200], "the original stays as it was"


def test_a_stall_and_its_end_have_the_node_in_their_id_and_the_jobs_ranks() -> None:
    seen = stall(20.0, {"rank": 0, "since_ns": 5}, {"rank": 1})
    del seen.data["ranks"][1]["since_ns"]
    own = node(events=(seen, stall_end(), Event(9, "death", 101, 1, {"role": "rank"})))
    renamed, end, death = Renaming(1, CLOCK, ranks={0: 2, 1: 3}).recording(own).events
    assert renamed.data["id"] == end.data["id"] == "stall-1@1"
    assert [(row["rank"], row["since_ns"]) for row in renamed.data["ranks"]] == [
        (2, 5 + LATER_NS),
        (3, seen.t_ns + LATER_NS),
    ]
    assert renamed.t_ns == seen.t_ns + LATER_NS
    assert (death.t_ns, death.pid, death.rank) == (9 + LATER_NS, 101 + NODE_PIDS, 3)
    assert seen.data["id"] == "stall-1", "the original stays as it was"


def test_gpus_and_the_paths_between_them_are_renumbered() -> None:
    own = node()
    gpus = [{"index": 0, "name": "A100"}, {"index": 3, "name": "A100"}]
    environment: Any = {"gpus": gpus, "gpu_paths": [{"a": 0, "b": 3, "path": "NV12", "p2p": "OK"}], "kernel": "6.1"}
    own = replace(own, meta=replace(own.meta, environment=environment))
    found: Any = Renaming(1, CLOCK, first_gpu=8).recording(own).meta.environment
    assert [(gpu["index"], gpu["index_on_host"]) for gpu in found["gpus"]] == [(8, 0), (11, 3)]
    assert found["gpu_paths"] == [{"a": 8, "b": 11, "path": "NV12", "p2p": "OK"}]
    assert found["kernel"] == "6.1"
    assert gpus[0] == {"index": 0, "name": "A100"}
