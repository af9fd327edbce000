"""Cost of watching a step for waits: at its beginning and end, and for each call in it. `python tests/bench/waits.py`

Needs no GPU: the host stands for one.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
os.environ["RN50_ADVISOR_SYNC_DEVICE"] = "cpu"

import torch
import torch._dynamo  # loaded in any job that has stepped an optimizer

from rn50_advisor.probes.rank.gpu.device_syncs import Syncs

LOOKS = 200
CALLS = 200


def main() -> None:
    torch.set_num_threads(1)
    account = SimpleNamespace(thread=threading.get_ident(), phase=0, self_ns=0)
    loss, turns, inside, alone, after = torch.tensor(1.0), [], [], [], []
    for number in range(LOOKS):
        syncs = Syncs(torch, lambda: None)
        syncs._compiled = 0
        alone.append(each(loss))
        began = perf_counter_ns()
        syncs.turn(6, account, {})
        middle = perf_counter_ns()
        assert syncs.open, number
        inside.append(each(loss))
        then = perf_counter_ns()
        syncs.turn(7, account, {})
        turns.append(middle - began + perf_counter_ns() - then)
        after.append(each(loss))
    turn, met, before, later = (statistics.median(values) / 1000 for values in (turns, inside, alone, after))
    print(f"opening and closing a look {turn:6.1f} us")
    print(f"item() in a look           {met:6.2f} us, before it {before:.2f} us, after it {later:.2f} us")


def each(loss: torch.Tensor) -> float:
    """Mean nanoseconds of one call."""
    began = perf_counter_ns()
    for _ in range(CALLS):
        loss.item()
    return (perf_counter_ns() - began) / CALLS


if __name__ == "__main__":
    main()
