"""How many NVLinks of each GPU should be up: by its form, by the others of its model in the same machine, and by what was up before."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu

# Boards that exist with NVLink alone; the driver names the form of an A100 and older, and of newer ones the form that has none.
_SXM = re.compile(r"SXM|H100 80GB HBM3|H200$|B[23]00$")


def links_due(
    gpus: tuple[Gpu, ...], active: Mapping[int, float], most: Mapping[int, float] | None = None
) -> dict[int, float]:
    """By GPU, of those whose links that are up were counted (`active` the fewest, `most` the most in the run); as many where nobody knows.

    A board that takes a bridge and has no link up has none, or a broken one: beside others that have some it is left out.
    """
    due = {}
    for gpu in gpus:
        if gpu.index not in active:
            continue
        alike = [other for other in gpus if other.is_like(gpu)]
        best = max(active.get(other.index, 0.0) for other in alike)
        own = max(active[gpu.index], (most or {}).get(gpu.index, 0.0))
        bound = bool(_SXM.search(gpu.name))
        if gpu.nvlink_switched and gpu.nvlinks:
            due[gpu.index] = float(gpu.nvlinks)
        elif bound and best == 0 and len(alike) > 1:
            # some lead to GPUs that this machine was not given: only where none is up it is known that some should be
            due[gpu.index] = float(gpu.nvlinks or 0)
        elif bound or own > 0 or best == 0:
            due[gpu.index] = max(best, own)
    return due
