"""Extra computing that only takes time."""

from __future__ import annotations

import time

import torch
from torch import Tensor


def extra_work(ms: float) -> Tensor:
    """Uses this much CPU time of the thread, also on a busy machine. Returns zero, to be added to a loss."""
    end_ns, square = time.thread_time_ns() + ms * 1e6, torch.rand(128, 128)
    while time.thread_time_ns() < end_ns:
        square = torch.tanh(square @ square)
    return square.mean() * 0
