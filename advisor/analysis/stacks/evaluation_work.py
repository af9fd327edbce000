"""Finds what evaluations do beside the model, such as metrics of all outputs so far or collecting them, and whether they generate text."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from rn50_advisor.advisor.analysis.stacks.after_backward import Line
from rn50_advisor.advisor.analysis.stacks.after_update import evaluation_lines
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.source.loop_source import parsed
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    CodeLine,
    Frames,
    called,
    in_forward,
    inner,
    line_of,
    user_rows,
)
from rn50_advisor.advisor.model.analysis import EvaluationWork, GeneratingShare
from rn50_advisor.advisor.model.recording import Recording, data_of
from rn50_advisor.probes.documents.code_places import CodePlace, StackFrame
from rn50_advisor.probes.documents.event_documents import StackProfile, StackSample
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Functions of libraries that go through an evaluation's batches, by a part of their file.
_LOOPS = {"/transformers/": ("evaluation_loop", "prediction_loop"), "/loops/evaluation_loop.py": ("run", "advance")}
_COLLECTING = "/transformers/trainer_pt_utils.py"
_GENERATES = ("/transformers/generation/", "generate")
_PHASE = "evaluation"
_OTHER_WORK = (FETCH, "/torch/distributed/")  # loading, and waiting for other ranks
_METRICS, _REDUCES = "compute_metrics", "preprocess_logits_for_metrics"


def evaluation_work(recording: Recording) -> EvaluationWork | None:
    """What most stack samples of evaluations beside the model are in; None if no sample is known to be beside it.

    What follows the last batch, such as the metrics, counts as time between steps: its lines are found there.
    """
    lines = evaluation_lines(recording)
    places, leaves = Counter[CodeLine](), dict[CodeLine, str]()
    inside = beside = collecting = 0
    for labelled, count, frames in _samples(recording):
        stack = inner(frames)
        loop = next((n for n, frame in enumerate(stack) if _evaluates(frame, lines)), None)
        inside += count if labelled else 0
        elsewhere = in_forward(stack) or any(part in frame["file"] for frame in stack for part in _OTHER_WORK)
        if elsewhere or (loop is None and not labelled):
            continue
        beside += count if labelled else 0
        below = stack[: len(stack) if loop is None else loop]
        collecting += count if any(frame["file"].endswith(_COLLECTING) for frame in below) else 0
        own = next((frame for frame in below if is_user_file(frame["file"])), None) or stack[loop or 0]
        places[line_of(own)] += count
        leaves.setdefault(line_of(own), place(stack[0]))
    if not beside:
        return None
    most = places.most_common(1)[0][0]
    return EvaluationWork(
        *most,
        leaf=leaves[most],
        samples=inside,
        share=beside / inside,
        lines=frozenset((file, line) for file, line, _ in places),
        trainer=_trainer(recording) if collecting else None,
    )


def generating_share(recording: Recording) -> GeneratingShare | None:
    """How many stack samples in evaluations generate text; None without a sample."""
    file, function = _GENERATES
    inside = generating = 0
    for labelled, count, frames in _samples(recording):
        inside += count if labelled else 0
        found = labelled and any(file in frame["file"] and called(frame) == function for frame in frames)
        generating += count if found else 0
    return GeneratingShare(inside, generating / inside) if inside else None


def _samples(recording: Recording) -> Iterator[tuple[bool, int, Frames]]:
    """Yields (is within an evaluation that the recorder saw, samples, stack)."""
    for event in recording.events:
        profile, sample = data_of(event, StackProfile), data_of(event, StackSample)
        if profile is not None:
            yield from ((False, row["count"], row["frames"]) for row in user_rows(profile))
        elif sample is not None and sample.get("user"):
            yield sample.get("phase") == _PHASE, 1, sample["frames"]


def _evaluates(frame: StackFrame, lines: frozenset[Line]) -> bool:
    known = any(part in frame["file"] and called(frame) in names for part, names in _LOOPS.items())
    return known or (frame["file"], frame["line"]) in lines


def _trainer(recording: Recording) -> CodePlace | None:
    """The call that gives a trainer its metrics, and no function that reduces its outputs before they are collected."""
    for source in recording.sources:
        tree = parsed(source.text)
        for node in ast.walk(tree) if tree is not None else ():
            given = {keyword.arg for keyword in node.keywords} if isinstance(node, ast.Call) else set()
            if isinstance(node, ast.Call) and _METRICS in given and _REDUCES not in given:
                return CodePlace(file=source.path, line=node.lineno)
    return None
