"""Loops without a torch loader, and stack samples of them. Not a test."""

from __future__ import annotations

from typing import Any

from recordings import plan, recording, stack
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Verdict
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER

JOB = "/job/train.py"
PACKAGES = "/env/lib/python3.11/site-packages"
IN_MODEL = ("_call_impl", f"{PACKAGES}/torch/nn/modules/module.py", 1775)
IN_QUEUE = (("wait", "/usr/lib/python3.11/threading.py", 320), ("get", "/usr/lib/python3.11/queue.py", 171))


def stack_samples(count: int, *callees: tuple[str, str, int], text: str = "", line: int = 30) -> list[Any]:
    """Stack samples with the training thread at one line of the user's code, and in the functions that the line called."""
    found = [stack(JOB, line, "batches", *callees) for _ in range(count)]
    for event in found:
        event.data["user"]["text"] = text  # type: ignore[index]
    return found


AFTER = {"backward_cpu": 30, "optimizer_cpu": 10}


def without_loader(
    events: list[Any] | None = None, *, facts: dict[str, Any] | None = None, **phases: float
) -> Recording:
    """Steps of 100 ms, with 60 ms between optimizer and backward, spent computing unless `forward_cpu` says otherwise."""
    own = {"input_wait": 0, "forward": 60, "backward": 30, "optimizer": 10, "forward_cpu": 60, **AFTER, **phases}
    steps = plan(40, flags=FLAG_NO_LOADER | FLAG_CLOCKED, **own)
    return recording({0: steps}, events=tuple(events or ()), facts={100: facts or {}})


def verdict_of(made: Recording) -> Verdict:
    return diagnose(made).verdict
