"""The process group of a job: one where a launcher has started it, else none."""

from __future__ import annotations

import gc
import os

import torch.distributed as dist


def join() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")


def leave() -> None:
    if dist.is_initialized():
        dist.barrier()  # together: gloo now and then aborts a rank whose peer has left
        dist.destroy_process_group()
    gc.freeze()  # Python would look through all of torch for garbage as it ends: 0.65 s of CPU time a process
