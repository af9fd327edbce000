"""Requests to the recorder in the job, as files in the ring folder. Imports stay light: the launcher writes them before
the job starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rn50_advisor.probes.rank.rank_ring_folder import put
from rn50_advisor.probes.rank.side_files import BUDGET, DEEP_REQUEST, TRIAL_REQUEST

STEPS = 2
FROM_STEP = 10  # allocators, autotuning and compilation are through
TRACE_BYTES_MAX = 64 << 20  # some 100,000 events; parsing takes ten times that in memory for a second


def ask(ring_folder: Path, run_folder: Path, *, auto: bool = False, pid: int | None = None) -> None:
    """Requests a trace: of process `pid`, or of the first rank on this node; with `auto`, prepares for a later request. Raises OSError."""
    request = {
        "auto": auto and pid is None,
        "pid": pid,
        "from_step": FROM_STEP,
        "steps": STEPS,
        "folder": str(run_folder.resolve()),
        "bytes_max": TRACE_BYTES_MAX,
    }
    put(str(ring_folder), DEEP_REQUEST, json.dumps(request))


def try_out(ring_folder: Path, request: Mapping[str, object]) -> None:
    """Requests changes of every rank; each process reads them when it imports torch. Raises OSError, or TypeError if they are no JSON."""
    put(str(ring_folder), TRIAL_REQUEST, json.dumps(dict(request)))


def allow(ring_folder: Path, share: float) -> None:
    """Limits the share of time that sample profiling may take in processes that make batches; read when one starts. Raises OSError."""
    put(str(ring_folder), BUDGET, repr(share))
