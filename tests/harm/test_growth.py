"""The agent's memory and the run's lists do not grow with the workers that a job starts. By hand: `test_growth.py 100000 [FOLDER]`."""

from __future__ import annotations

import gc
import json
import sqlite3
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from rn50_advisor.advisor.model.recording import Process
from rn50_advisor.advisor.run.processes.departures import Departures
from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.run.rings.ring_followers import Followers
from rn50_advisor.advisor.run.sidefiles.rank_notes import Notes
from rn50_advisor.advisor.run.sidefiles.stderr_files import StderrFiles
from rn50_advisor.advisor.store.retention import Limits
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.secrets import secret_shapes
from rn50_advisor.advisor.store.secrets.masking import redact_text
from rn50_advisor.probes.host.process.death_watch import ProcessDeath
from rn50_advisor.probes.host.process.process_tree import Member, TreeChange
from rn50_advisor.probes.host.sampler import Tick
from rn50_advisor.probes.rank import layout
from rn50_advisor.probes.rank.ring import Ring

FIRST_PID, PIDS = 1000, 30_000  # numbers come around, as the kernel's do
LISTED = 300
AT_ONCE = 50  # workers that live at a time
CACHED = 20_000  # texts: more than are remembered once they have been masked
# There were 517. From 1,500 workers on, Python's own caches and SQLite's change by 25 kB at most: 17 bytes each of 1,500.
BYTES_A_WORKER = 32


def start_and_end_workers(folder: Path, count: int, at_rest: Callable[[int], None]) -> Path:
    """Real rings, one per worker, through everything that follows them; `at_rest` gets the number of workers so far."""
    rings, run = folder / "rings", folder / "run"
    rings.mkdir(mode=0o700)
    writer = RunWriter.create(run, meta={}, limits=Limits(processes=LISTED))
    roster = Roster(writer, 1, "job")
    departures = Departures(roster, lambda news: None)
    followers = Followers(writer, roster, rings, watch_death=lambda pid: None)
    notes = Notes(writer, rings, want_mount=lambda place: None, want_source=lambda path, at: None)
    stderr = StderrFiles(0)
    Ring(str(rings / "rank-999.ring"), slots=16, role=layout.ROLE_RANK, rank=0)
    _name(rings / "rank-999.ring", 999, layout.ROLE_RANK, parent=1)
    worker = Ring(str(folder / "worker"), slots=4, role=layout.ROLE_WORKER, worker=0)
    worker.write(layout.KIND_BATCH, 0, range(len(layout.BATCH_FIELDS)))
    whole = (folder / "worker").read_bytes()
    now_ns = 0
    for first in range(0, count, AT_ONCE):
        pids = [FIRST_PID + number % PIDS for number in range(first, first + AT_ONCE)]
        now_ns += 1_000_000_000
        members = tuple(
            Member(pid, 999, now_ns, now_ns, now_ns, f"python worker of {now_ns}", 0.1, 0.0) for pid in pids
        )
        roster.update(TreeChange(started=members), members)
        for pid in pids:
            path = rings / f"worker-{pid}.ring"
            path.write_bytes(whole)
            _name(path, pid, layout.ROLE_WORKER, parent=999)
            (rings / f"facts-{pid}.json").write_text(json.dumps({"pid": pid, "loaders": []}))
        followers.look(now_ns)
        notes.read()
        departures.note(Tick(now_ns, (), ()), members)
        roster.update(TreeChange(ended=members), ())
        for pid in pids:
            killed = pid % 500 == 0
            death = ProcessDeath(pid, now_ns, None if killed else 0, 9 if killed else None)
            assert followers.died(death)
            departures.suspect(death)
            stderr.ended(pid)
            notes.leave(pid)
        for death in departures.inferred(now_ns + 2_000_000_000):
            assert not followers.died(death), "that was no news"
        departures.settle(now_ns + 10_000_000_000)
        writer.commit()
        at_rest(first + AT_ONCE)
    assert followers.workers() == [] and len(list(rings.iterdir())) == 1
    followers.close()
    writer.close()
    return run


def _name(ring: Path, pid: int, role: int, *, parent: int) -> None:
    """Whose ring it is: all else of a real one stays."""
    header = bytearray(ring.read_bytes()[: layout.FIXED.size])
    fields = list(layout.FIXED.unpack(header))
    fields[4], fields[5], fields[10] = pid, role, parent
    with ring.open("r+b") as file:
        file.write(layout.FIXED.pack(*fields))


def growth(folder: Path, count: int) -> tuple[float, Path]:
    """Bytes for each worker of the second half, once everything that has a bound is full."""
    held: dict[int, int] = {}

    def at_rest(done: int) -> None:
        if done in (count // 2, count):
            gc.collect()
            held[done] = tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        secret_shapes._rules()
        for number in range(len(secret_shapes._rows())):  # compiled where they are first needed
            secret_shapes._compiled(number)
        for number in range(CACHED):
            redact_text(f"python worker of {number}")
        run = start_and_end_workers(folder, count, at_rest)
    finally:
        tracemalloc.stop()
    return (held[count] - held[count // 2]) / (count - count // 2), run


def test_nothing_is_held_of_a_worker_that_has_ended_and_the_table_has_a_ceiling(tmp_path: Path) -> None:
    count = 3_000
    # In a process of its own: what threads of other tests allocate meanwhile would be counted too.
    child = subprocess.run(
        [sys.executable, __file__, str(count), str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert float(child.stdout.split()[0]) < BYTES_A_WORKER
    recording = read_recording(tmp_path / "run")
    workers = [p for p in recording.processes if p.role == "worker"]
    slack = 2 * AT_ONCE + LISTED
    assert len(recording.processes) <= LISTED + slack
    killed = [p for p in workers if p.exit_signal == 9]
    assert len(killed) == count // 500, "those that failed stay"
    assert len(workers) + recording.meta.processes_left_out == count
    assert any(p.role == "rank" for p in recording.processes)
    newest = max(p.first_seen_ns for p in workers)
    assert sum(p.first_seen_ns == newest for p in workers) == AT_ONCE
    (left_out,) = (gap for gap in recording.gaps if (gap.metric, gap.scope) == ("processes", "ended"))
    assert str(recording.meta.processes_left_out) in left_out.reason


def test_what_the_processes_left_out_read_and_wrote_is_not_taken_for_nothing(tmp_path: Path) -> None:
    from dataclasses import replace

    import numpy as np

    from rn50_advisor.advisor.analysis.storage.process_io import grown
    from rn50_advisor.advisor.model.recording import Series

    writer = RunWriter.create(tmp_path / "run", meta={})
    writer.put_process(Process(7, "worker", 0, None, 0, 1, "python", 0))
    writer.close()
    recording = read_recording(tmp_path / "run")
    read = Series(np.array([0, 10], np.int64), np.array([0.0, 100.0]))
    recording = replace(recording, samples={("proc.read_bytes", "pid:7"): read})
    assert grown(recording, recording.processes, "proc.read_bytes", 0, 10) == 100.0
    recording = replace(recording, meta=replace(recording.meta, processes_left_out=3, left_out_until_ns=5))
    assert grown(recording, recording.processes, "proc.read_bytes", 0, 10) is None
    assert grown(recording, recording.processes, "proc.read_bytes", 5, 10) == 50.0


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        count, folder = int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else temporary)
        grown, run = growth(folder, count)
        with closing(sqlite3.connect(run / "run.sqlite")) as db:
            (rows,) = db.execute("SELECT count(*) FROM processes").fetchone()
        size = (run / "run.sqlite").stat().st_size
        print(f"{grown:.1f} bytes a worker, {rows} processes listed, a run file of {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
