"""Computing that a job does for nothing but its time."""

from __future__ import annotations

import time

import torch
from torch import Tensor


def extra_work(ms: float) -> Tensor:
    """So much of this thread's own time: a busy machine makes it no less. Zero, to be added to a loss."""
    end_ns, square = time.thread_time_ns() + ms * 1e6, torch.rand(128, 128)
    while time.thread_time_ns() < end_ns:
        square = torch.tanh(square @ square)
    return square.mean() * 0
