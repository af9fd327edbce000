"""The process group of a job: one where torchrun has started it, else none."""

from __future__ import annotations

import os

import torch.distributed as dist


def join() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")


def leave() -> None:
    if dist.is_initialized():
        dist.barrier()  # together: gloo now and then aborts a rank whose peer has left
        dist.destroy_process_group()
