"""Frames that nodes send in a live merge. Not a test."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Inbox, sent_recordings
from rn50_advisor.advisor.merge.node_frames import packed
from rn50_advisor.advisor.merge.outbox import Outbox
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import COMM_FIELDS, KIND_COMM, KIND_STEP, STEP_FIELDS

PERIOD_NS = 10_000_000_000


def frames_of(own: Recording) -> list[tuple[str, bytes]]:
    """Returns the frames this node would have sent: its state, and its steps every ten seconds."""
    outbox = Outbox()
    outbox.put_meta({f: getattr(own.meta, f) for f in ("name", "argv", "cwd", "host", "started_unix_s", "started_ns")})
    for process in own.processes:
        outbox.put_process(process)
    for pid, facts in own.facts.items():
        outbox.put_facts(pid, facts)
    frames = []
    begin_ns, end_ns = own.meta.started_ns, own.meta.last_ns
    for now_ns in range(begin_ns + PERIOD_NS, end_ns + PERIOD_NS, PERIOD_NS):
        for rank, rows in own.steps.items():
            inside = rows[(rows["t_end_ns"] > now_ns - PERIOD_NS) & (rows["t_end_ns"] <= now_ns)]
            steps = [(int(r["flags"]), tuple(int(r[n]) for n in STEP_FIELDS)) for r in inside]
            outbox.put_records(KIND_STEP, rank, steps, None)
            stamps = own.comm[rank][np.isin(own.comm[rank]["step"], inside["step"])]
            told = [(int(r["flags"]), tuple(int(r[n]) for n in COMM_FIELDS)) for r in stamps]
            outbox.put_records(KIND_COMM, rank, told, None)
            outbox.put_position(rank, "forward", int(inside["step"][-1]) if inside.size else 0, now_ns)
        outbox.put_samples([Sample("cpu.busy_s", "host", now_ns / 1e9), Sample("cpu.cores", "host", 8.0)])
        frames.append(("steps", packed(outbox.steps_frame(now_ns))))
    outbox.put_meta({"ended_ns": own.meta.ended_ns, "exit_code": own.meta.exit_code})
    return [("state", packed(outbox.state_frame(end_ns))), *frames]


def received(folder: Path, own: Recording) -> Recording:
    inbox = Inbox(folder)
    node = inbox.node_of("a sender")
    for kind, body in frames_of(own):
        inbox.put(node, kind, body)
    inbox.close()
    (found,) = sent_recordings(folder / INBOX_NAME)
    return found
