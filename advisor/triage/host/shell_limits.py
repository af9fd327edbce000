"""Limits of the shell or container that a training meets late: open files, locked memory."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from rn50_advisor.advisor.model.documents.machine_triage import Band
from rn50_advisor.advisor.triage.found_checks import Item, fact, judged

FILES_LEAST = 1024.0


def limits(root: Path = Path("/")) -> Iterator[Item]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield fact("limits.open_files", "unlimited")
    else:
        hint = f"ulimit -n (hard limit {hard}): loader workers pass batches as open files, and hundreds of them add up"
        band = Band(
            FILES_LEAST, None, "the usual soft limit of Linux; PyTorch's sharing strategy file_descriptor asks for more"
        )
        yield judged("limits.open_files", float(soft), "files", band, remedy="fix", hint=hint, why=hint)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        yield fact("limits.locked_memory", "unlimited")
        return
    if not list(root.glob("sys/class/infiniband/*")):
        yield fact(
            "limits.locked_memory", float(soft), "bytes", hint="matters to RDMA alone, of which there is none here"
        )
        return
    hint = "docker run --ulimit memlock=-1: NCCL cannot register memory with the network card beyond it"
    band = Band(float(1 << 40), None, "NCCL's troubleshooting guide: unlimited where RDMA is used")
    yield judged("limits.locked_memory", float(soft), "bytes", band, remedy="fix", hint=hint, why=hint)
