"""Finds the user's lines that call parts of torch: recurrent layers for one time step at a time, the cross entropy, a layer by its name."""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Set

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import calls_another, training_callees
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at, is_called_again, parsed
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.source.written_names import last_name
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    SeenStack,
    called,
    in_forward,
    inner,
    line_of,
    place_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.stacks.timed_passes import before_backward, every_timed_pass
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_MODULES, _LAYERS = "/torch/nn/modules/", "/torch/nn/modules/rnn.py"
_FUNCTIONAL, _LOSS = "/torch/nn/functional.py", "cross_entropy"
_PACKING = ("pack_padded_sequence", "pack_sequence")


def recurrent_lines(recording: Recording) -> tuple[HotLine, ...]:
    """Lines that call `nn.LSTM`, `nn.GRU` or `nn.RNN` in every round of a loop.

    `share`: of the samples in their rank's forward passes. `leaf`: the layer; empty before Python 3.11, whose profiles name no class.
    """
    found, on_gpu = [], ranks_on_gpus(recording)
    for rank, profile in profiles_by_rank(recording):
        lines = Counter[tuple[str, int, str, str]]()
        rows = user_rows(profile) if rank not in on_gpu else []
        trains = training_callees(rows)
        training = {place for place, _ in trains}
        forward = [row for row in rows if in_forward(row["frames"])]
        for row in forward:
            frames = inner(row["frames"])
            at = next((n for n, frame in enumerate(frames) if frame["file"].endswith(_LAYERS)), None)
            loop = next((n for n, frame in enumerate(frames) if place_of(frame) in training), len(frames) - 1)
            if at is None or calls_another(frames, loop, trains):
                continue  # no such layer, or a rollout or an evaluation
            # the loop over time may be in a function that calls the one with the layer
            own = (each for each in frames[at:loop] if is_user_file(each["file"]))
            again = next((each for each in own if is_called_again(recording.sources, each["file"], each["line"])), None)
            if again is not None:
                layer, _, _ = frames[at]["function"].rpartition(".")
                lines[again["file"], again["line"], again["function"], layer] += row["count"]
        samples = sum(row["count"] for row in forward)
        found += [HotLine(*line, count, count / samples, io=False) for line, count in lines.items()]
    return tuple(sorted(found, key=lambda line: -line.samples))


def loss_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The user's lines that call torch's cross entropy, over all ranks, the longest first; a module of it counts for its caller.

    Empty where no recorder saw a loss ignore targets: nobody would ask for them.
    """
    if not any(nodes.get("ignored_ns") for nodes in every_timed_pass(recording)):
        return ()
    calls = []
    for _, _, row, count in step_rows(recording):
        frames = inner(row["frames"])
        at = next((n for n, frame in enumerate(frames) if _is_loss(frame)), len(frames))
        user = next((frame for frame in frames[at:] if is_user_file(frame["file"])), None)
        if user is not None:
            calls.append((line_of(user), _LOSS, count))
    return longest(recording, calls)


def layer_line(row: SeenStack, sources: tuple[Source, ...], weight: str) -> CodeLine | None:
    """The user's innermost line that calls the layer of this weight, or a part of the model around it, by its name."""
    parts, inside = frozenset(part for part in weight.split(".")[:-1] if part.isidentifier()), False
    for frame in before_backward(row):
        inside = inside or _MODULES in frame["file"]
        if inside and is_user_file(frame["file"]) and _calls(sources, line_of(frame), parts):
            return line_of(frame)
    return None


def _calls(sources: tuple[Source, ...], place: CodeLine, names: Set[str]) -> bool:
    function = function_at(sources, place[0], place[1])
    return function is not None and _calls_at(function, place[1], names)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _calls_at(function: ast.AST, line: int, names: Set[str]) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and covers(node, line))
    return any(name_of(node) in names for node in calls)


def packing_lines(recording: Recording) -> tuple[tuple[str, int], ...]:
    """Lines of the user's that pack padded sequences, where the model has an LSTM of torch and trains on a CPU; by file and line."""
    on_gpu = ranks_on_gpus(recording)
    models = (f.get("model") or {} for f in recording.facts.values() if f.get("rank") not in on_gpu)
    if not any("LSTM" in model.get("layers", {}) for model in models):
        return ()
    trees = ((source.path, None if source.edited else parsed(source.text)) for source in recording.sources)
    calls = ((path, node) for path, tree in trees if tree is not None for node in ast.walk(tree))
    found = {
        (path, node.lineno) for path, node in calls if isinstance(node, ast.Call) and last_name(node.func) in _PACKING
    }
    return tuple(sorted(found))


def _is_loss(frame: StackFrame) -> bool:
    return called(frame) == _LOSS and frame["file"].endswith(_FUNCTIONAL)
