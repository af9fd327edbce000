"""Finds hooks of modules and gradients that watch the training: functions of the user's that torch calls in the step, and whose result it
does not use.

A hook that returns a value, or writes in place, changes what is trained, and is none of these. The source of the function says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.hot_lines import leaf_of
from rn50_advisor.advisor.analysis.stacks.loop_lines import calls_model, longest, profiled_values, step_rows
from rn50_advisor.advisor.analysis.stacks.source.hook_source import only_watches
from rn50_advisor.advisor.analysis.stacks.stack_profiles import Frames, SeenStack, called, inner, line_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_HOOKS_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Who calls hooks: autograd's engine those of gradients, this file those of modules in backward passes, modules those of forward passes.
_ENGINE, _ENGINE_FILE, _HOOKS = "_engine_run_backward", "/torch/autograd/graph.py", "/torch/utils/hooks.py"
_INNER, _MODULE = "inner", "/torch/nn/modules/module.py"  # of a module's call, where it has hooks
_OTHERS = ("forward", "__call__", "<lambda>")  # a lambda returns something, unless what it calls does not
_UNREAD_MIN = 10  # samples in hooks without a source: with fewer these are not worth a word
_UPDATES = ("/torch/optim/", "/torch/distributed/")


def hook_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile and a source. On a GPU, at most the time in which the GPU had nothing queued."""
    seen, unread = Counter[int](), Counter[int]()
    for rank, hook, _, count in _hooks(recording):
        watches = only_watches(recording.sources, hook)
        if watches is not False:
            (unread if watches is None else seen)[rank] += count
    hidden = {rank for rank in steady if unread[rank] >= _UNREAD_MIN and not seen[rank]}
    read = {rank: steps for rank, steps in steady.items() if rank not in hidden}
    found = profiled_values(recording, read, values, STEP_HOOKS_S, seen, by_source=True)
    for rank in hidden:
        found.missing[STEP_HOOKS_S, rank] = "the source of its hooks was not kept"
    return found


def hook_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines of these hooks where most time is spent, over all ranks, the longest first."""
    return longest(
        recording,
        (
            (line_of(hook), leaf_of(row), count)
            for _, hook, row, count in _hooks(recording)
            if only_watches(recording.sources, hook)
        ),
    )


def _hooks(recording: Recording) -> Iterator[tuple[int, StackFrame, SeenStack, int]]:
    """Yields (rank, the hook's frame, stack, samples)."""
    for rank, _, row, count in step_rows(recording):
        hook = _hook(inner(row["frames"]))
        if hook is not None:
            yield rank, hook, row, count


def _hook(frames: Frames) -> StackFrame | None:
    """The user's function that torch calls as a hook, if the stack is in one and not in a layer that it calls."""
    for n, frame in enumerate(frames[:-1]):
        if calls_model(frame) or any(part in frame["file"] for part in _UPDATES):
            return None
        if is_user_file(frame["file"]) and called(frame) not in _OTHERS and _calls_hooks(frames[n + 1]):
            return frame
    return None


def _calls_hooks(frame: StackFrame) -> bool:
    engine = called(frame) == _ENGINE and frame["file"].endswith(_ENGINE_FILE)
    forward = called(frame) == _INNER and frame["file"].endswith(_MODULE)
    return engine or frame["file"].endswith(_HOOKS) or forward or calls_model(frame)
