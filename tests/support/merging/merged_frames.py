"""A node's run file, and the frames that its agent sends while it is written. Not a test."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from recordings import SECOND
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Inbox, sent_recordings
from rn50_advisor.advisor.merge.node_frames import packed
from rn50_advisor.advisor.merge.run_tail import RunTail
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import COMM_FIELDS, KIND_COMM, KIND_STEP, STEP_FIELDS

PERIOD_NS = 10 * SECOND
_START = ("name", "argv", "cwd", "host", "started_unix_s", "started_ns", "environment")
_END = ("ended_ns", "exit_code", "exit_signal")


def write_run(folder: Path, own: Recording) -> list[tuple[str, bytes]]:
    """Writes the run and returns its frames: steps every ten seconds, and the state at the end."""
    end_ns = own.meta.last_ns
    writer = RunWriter.create(folder, meta={n: getattr(own.meta, n) for n in _START}, clock=lambda: end_ns)
    frames = []
    with contextlib.closing(RunTail(folder)) as tail:
        for process in own.processes:
            writer.put_process(process)
        for pid, facts in own.facts.items():
            writer.put_facts(pid, facts)
        for now_ns in range(own.meta.started_ns + PERIOD_NS, end_ns + PERIOD_NS, PERIOD_NS):
            _write_period(writer, own, now_ns)
            writer.commit()
            frames.append(("steps", packed(tail.steps_frame(now_ns))))
        for event in own.events:
            writer.put_event(event)
        writer.put_meta(**{name: getattr(own.meta, name) for name in _END})
        writer.commit()
        frames.append(("state", packed(tail.state_frame(end_ns))))
    writer.close()
    return frames


def _write_period(writer: RunWriter, own: Recording, now_ns: int) -> None:
    for rank, rows in own.steps.items():
        inside = rows[(rows["t_end_ns"] > now_ns - PERIOD_NS) & (rows["t_end_ns"] <= now_ns)]
        stamps = own.comm[rank][np.isin(own.comm[rank]["step"], inside["step"])]
        for kind, names, found in ((KIND_STEP, STEP_FIELDS, inside), (KIND_COMM, COMM_FIELDS, stamps)):
            writer.put_records(kind, rank, [(int(row["flags"]), tuple(int(row[n]) for n in names)) for row in found])
        writer.put_position(rank, "forward", int(inside["step"][-1]) if inside.size else 0, now_ns)
    for t_ns in range(now_ns - PERIOD_NS + SECOND, now_ns + 1, SECOND):
        readings = own.samples.items()
        writer.put_samples(t_ns, [Sample(m, s, float(np.interp(t_ns, v.t_ns, v.value))) for (m, s), v in readings])


def receive(folder: Path, *runs: list[tuple[str, bytes]]) -> list[Recording]:
    """Puts the frames of these nodes beside the run in `folder`, and returns what is read there."""
    inbox = Inbox(folder)
    for number, frames in enumerate(runs):
        for kind, body in frames:
            inbox.put(f"node {number}", kind, body)
    inbox.close()
    return sent_recordings(folder / INBOX_NAME)
