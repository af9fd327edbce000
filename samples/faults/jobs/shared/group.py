"""The process group of a job, if a launcher started it. Import this module before torch: it loads torch without garbage collection."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection while torch is loaded: repeated collections would cost 0.6 s of CPU time per process."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # puts loaded objects into the oldest generation; in the youngest they would delay a step by 0.2 s
        gc.enable()


with uncollected():
    import torch
    import torch.distributed as dist


def join() -> None:
    with uncollected():
        importlib.import_module("torch._dynamo")  # the first optimizer would import it
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        torch.manual_seed(dist.get_rank())  # each rank makes and shuffles samples of its own


def leave() -> None:
    if dist.is_initialized():
        dist.barrier()  # leave together: gloo sometimes aborts a rank whose peer has left
        dist.destroy_process_group()
    gc.freeze()  # else Python's exit collects all of torch's objects: 0.65 s of CPU time per process
