"""Deep windows, and their events. Not a test."""

from __future__ import annotations

import json
from dataclasses import asdict

from kernel_traces import plain, two_steps
from recordings import FIRST_STEP_NS
from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.recording import Event


def event(window: DeepWindow) -> Event:
    """Returns the window's event as it is read from a run file."""
    return Event(FIRST_STEP_NS, "deep", 100 + window.rank, window.rank, json.loads(json.dumps(asdict(window))))


def deep_window(rank: int = 0) -> DeepWindow:
    return window_of(two_steps(plain).document(), rank=rank, first_step=10)
