"""Ranks that ended because their GPU had no memory left, and the messages of torch. Not a test."""

from __future__ import annotations

from dataclasses import replace

from recordings import plan, rank_process, recording, table
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS

GIB = 2.0**30
NEW = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free. "
    "Process 4711 has 10.00 GiB memory in use. Including non-PyTorch memory, this process has 69.00 GiB memory in use. "
    "Of the allocated memory 66.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
ALONE = NEW.replace("Process 4711 has 10.00 GiB memory in use. ", "").replace(
    "1.50 GiB is reserved", "512.00 MiB is reserved"
)
HELD = {
    "class": "SGD",
    "parameters": 161,
    "parameter_bytes": int(GIB),
    "gradient_bytes": int(GIB),
    "state_bytes": int(GIB),
}


def died(text: str, *, steps: int = 0, facts=None, phase: str = "backward", batch: int = 256, held=None):
    """A recording in which this exception ends rank 0 after `steps` steps; `held`: GiB of tensors at the end of each step."""
    own_facts = {
        "rank": 0,
        "exception": {"type": "OutOfMemoryError", "message": text},
        "optimizer": HELD,
        **(facts or {}),
    }
    own_facts["loaders"] = [{"id": 0, "training": True, "batch_size": batch, "num_workers": 2}]
    made = recording({0: plan(max(steps, 1), samples=batch)}, facts={100: own_facts})
    if not steps:
        made = replace(made, steps={})
    ended = made.meta.last_ns
    memory_rows = [
        {"step": n, "allocated_bytes": int(g * GIB), "reserved_bytes": int(g * GIB)} for n, g in enumerate(held or ())
    ]
    return replace(
        made,
        meta=replace(made.meta, exit_code=1),
        processes=(rank_process(0, ended_ns=ended, exit_code=1),),
        positions={0: (phase, steps, ended)},
        gpu_steps={0: table((*GPU_STEP_FIELDS, "flags"), memory_rows)} if memory_rows else {},
    )
