"""`steps.py` with the edits that TraceML needs in a plain loop: its import, `init`, and each step inside `trace_step`.

Started by `traceml run`, which brings its own torchrun.
"""

from __future__ import annotations

import argparse

import traceml_ai as traceml
from steps import Stopwatch, options, prepare, write_took
from torch import nn


def main() -> None:
    asked = options(argparse.ArgumentParser(description=__doc__))
    traceml.init(mode="auto")
    training = prepare(asked.size, asked.steps, asked.workers)
    model, optimizer = training.model, training.optimizer
    watch = Stopwatch()
    for x, y in training.data:
        with traceml.trace_step(model):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        watch.step_ended()
    write_took(asked.took, watch.took())


if __name__ == "__main__":
    main()
