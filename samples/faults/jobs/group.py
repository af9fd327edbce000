"""The process group of a job: one where a launcher has started it, else none. Who imports it before torch has that without collecting."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Python goes through all of torch for garbage again and again while that is loaded: 0.6 s of CPU time a process."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.unfreeze()  # what was loaded is of the oldest generation now; of the youngest, it would hold up a step for 0.2 s
        gc.enable()


with uncollected():
    import torch.distributed as dist


def join() -> None:
    with uncollected():
        importlib.import_module("torch._dynamo")  # as the first optimizer does
    if "RANK" in os.environ:
        dist.init_process_group("gloo")


def leave() -> None:
    if dist.is_initialized():
        dist.barrier()  # together: gloo now and then aborts a rank whose peer has left
        dist.destroy_process_group()
    gc.freeze()  # Python would look through all of torch for garbage as it ends: 0.65 s of CPU time a process
