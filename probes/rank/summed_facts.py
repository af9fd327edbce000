"""Facts that grow over the run, and the exception that ends it."""

from __future__ import annotations

import sys
import time
from time import perf_counter_ns
from typing import TYPE_CHECKING

from .facts import process_facts
from .facts.optimizer_holdings import held_at_end
from .layout import PHASES
from .raised_exceptions import exception_facts, uncaught
from .signal_exceptions import reraise_signal_exception

if TYPE_CHECKING:
    from ..documents.rank_documents import RankFacts
    from .recorder import Recorder

_NO_MEMORY = "out of memory"


def ending_exception(recorder: Recorder) -> BaseException | None:
    """The exception that ends a process which never trained, or what was recorded of one that goes on."""
    # a notebook keeps that of an earlier cell as the last one
    return recorder.ending if recorder.retired else getattr(sys, "last_value", None)


def note_exception(recorder: Recorder) -> None:
    """Records the exception that ends the process, if any."""
    error = uncaught() if not recorder.retired else recorder.ending
    if error is not None:
        marked = PHASES[recorder.account.phase] if recorder.account is not None else ""
        recorder.facts.values["exception"] = exception_facts(recorder.torch, error, marked)
        if _NO_MEMORY in str(error):
            recorder.facts.values["held_at_end"] = held_at_end(recorder.torch, error, device_of(recorder.facts.values))


def device_of(values: RankFacts) -> str:
    """The recorded device in tensors' notation; empty without a GPU."""
    cuda = values.get("cuda")
    return "cuda:%d" % cuda["device"] if cuda else ""


def sum_up(recorder: Recorder) -> None:
    """Updates the facts that grow over the run."""
    values = recorder.facts.values
    values["loaders"] = recorder.loading.loaders.facts(recorder.account)
    values["save_sites"] = recorder.saves.facts()
    values["evaluation_sites"] = recorder.evaluations.facts()
    evaluated = recorder.account.evaluated_batches
    values["evaluation_batches"] = [evaluated.batches, evaluated.with_gradients]
    recorder.passes.hooks.count(recorder.account.step)
    counted = recorder.account.nodes
    if counted.steps:
        values["operations"] = {
            "steps": counted.steps,
            "nodes": counted.nodes,
            "low_ns": counted.low_ns(),
            "by_step": [[*count] for count in counted.by_step],
        }
    if recorder.several_threads_train:
        values["several_threads_train"] = True
    if recorder.gpu is not None and recorder.gpu.dropped:
        values["gpu_steps_dropped"] = recorder.gpu.dropped
    try:
        process_facts.note_compilations(values, now_ns=perf_counter_ns(), wall_us=1e6 * time.time())
    except Exception:  # dynamo's records may differ in other torch versions; the other facts are still written
        reraise_signal_exception()
