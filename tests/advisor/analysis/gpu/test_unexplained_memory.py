"""Memory of a GPU beyond what torch has reserved: that of the job's processes, or of another one that the driver does not list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from recordings import FIRST_STEP_NS, SECOND, plan, recording, table
from rn50_advisor.advisor.analysis.gpu.unexplained_memory import unexplained_values
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_FOREIGN_PROCESSES
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS

GB = 1_000_000_000
TIMES = FIRST_STEP_NS + SECOND * np.arange(5)


def seen(used_gb: Mapping[int, float], reserved_gb: Mapping[int, float], *, listed: bool = False) -> dict[int, float]:
    """Unexplained GB of each GPU, which has the rank of its number."""
    made: Recording = recording(dict.fromkeys(used_gb, plan(40)))
    sizes = {
        rank: table(
            (*GPU_STEP_FIELDS, "flags"),
            [{"step": n, "reserved_bytes": round(gb * GB) if n % 2 else -1} for n in range(40)],
        )
        for rank, gb in reserved_gb.items()
    }
    samples = {("gpu.mem_used_bytes", f"gpu:{n}"): Series(TIMES, np.full(5, gb * GB)) for n, gb in used_gb.items()}
    made = replace(made, gpu_steps=sizes, samples=samples)
    gpus = tuple(Gpu(index=n, name="A100", uuid=str(n), ranks=(n,), mem_total_bytes=40 * GB) for n in used_gb)
    known = Measured({(GPU_FOREIGN_PROCESSES, n): 0.0 for n in used_gb} if listed else {})
    found = unexplained_values(made, Window(made, int(TIMES[0]), int(TIMES[-1])), gpus, known)
    return {index: round(mb / 1000, 3) for (_, index), mb in found.items()}


def test_what_one_gpu_holds_beyond_the_others_is_not_the_jobs() -> None:
    assert seen({0: 18.0, 1: 24.0, 2: 17.5}, {0: 16.0, 1: 16.0, 2: 15.5}) == {0: 0.0, 1: 6.0, 2: 0.0}


def test_the_only_gpus_context_may_be_large() -> None:
    assert seen({0: 18.9}, {0: 16.0}) == {0: 0.0}
    assert seen({0: 25.0}, {0: 16.0}) == {0: pytest.approx(6.0)}


def test_nothing_is_said_where_processes_are_listed_or_an_allocator_tells_nothing() -> None:
    assert seen({0: 25.0}, {0: 16.0}, listed=True) == {}
    assert seen({0: 25.0}, {}) == {}
