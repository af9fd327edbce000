"""Measures operations that the user's own code composes of elementary ones, from stack samples of the forward pass, and finds their lines.

Some slow forms are torch's own, and show by their frames: a norm limited in each lookup of an embedding, a distribution with a full
covariance of which the source gives only the diagonal. On a GPU the host's samples say nothing about kernels: nothing is measured there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.forward_operations import forward_values
from rn50_advisor.advisor.analysis.stacks.loop_lines import calls_model, samples_by_rank, step_rows
from rn50_advisor.advisor.analysis.stacks.source.composed_source import composed_at, configured_at, is_diagonal
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    SeenStack,
    called,
    inner,
    line_of,
    starts_backward,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import ComposedForm, ComposedLines
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_COMPOSED_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_RENORM, _FUNCTIONAL = "_no_grad_embedding_renorm_", "/torch/nn/functional.py"
_MULTIVARIATE = "/torch/distributions/multivariate_normal.py"
# transformers' `gelu_new`, the default of GPT-2, is composed; its `gelu_pytorch_tanh` is torch's operation of the same values.
_ACTIVATIONS, _NEW_GELU = "/transformers/activations.py", "NewGELUActivation."
_WITH_MODULE: ComposedForm = "smoothed targets"  # their divergence may be an nn.KLDivLoss
# Which layer is called: its file and the beginning of its functions.
_LINEAR, _COSINE = ("/torch/nn/modules/linear.py", ""), ("/torch/nn/modules/distance.py", "CosineSimilarity.")
_MODULES = "/torch/nn/modules/"
_LINES_MAX = 5


def composed_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step, for each rank on a CPU with a profile and with the source of its model."""
    return forward_values(recording, steady, values, STEP_COMPOSED_S, samples_by_rank(_seen(recording)))


def composed_lines(recording: Recording) -> tuple[ComposedLines, ...]:
    """Where it is, the longest first."""
    samples = Counter[tuple[CodeLine, ComposedForm]]()
    for _, line, form, count in _seen(recording):
        samples[line, form] += count
    configured = configured_at(recording.sources)
    return tuple(
        ComposedLines(*line, form, count, configured if form == "gelu_new" else None)
        for (line, form), count in samples.most_common(_LINES_MAX)
    )


def _seen(recording: Recording) -> Iterator[tuple[int, CodeLine, ComposedForm, int]]:
    """Yields (rank, first line, form, samples)."""
    on_gpu = ranks_on_gpus(recording)
    for rank, _, row, count in step_rows(recording):
        found = None if rank in on_gpu else _composed(row, recording.sources)
        if found is not None:
            yield rank, *found, count


def _composed(row: SeenStack, sources: tuple[Source, ...]) -> tuple[CodeLine, ComposedForm] | None:
    frames = inner(row["frames"])
    if any(starts_backward(frame) for frame in frames):
        return None
    own = next(n for n, frame in enumerate(frames) if is_user_file(frame["file"]))
    below, user = frames[:own], frames[own]
    place = line_of(user)
    form = next((form for frame in below if (form := _form_of(frame)) is not None), None)
    if form == "multivariate normal" and not is_diagonal(sources, user["file"]):
        return None
    if form is not None:
        return place, form
    found = composed_at(sources, user["file"], user["line"])
    if found is None or not _belongs(below, found.form):
        return None
    return (user["file"], found.first, user["function"]), found.form


def _belongs(below: Sequence[StackFrame], form: ComposedForm) -> bool:
    """False for a layer that is called on a line of this form, but is no part of it."""
    layers = [frame for frame in below if _MODULES in frame["file"] and not calls_model(frame)]
    if form == "layer on one-hot rows":
        return all(_is_of(frame, *_LINEAR) for frame in layers)
    if form == "layer of cosine similarities":
        return any(_is_of(frame, *_COSINE) for frame in layers)
    return form == _WITH_MODULE or not any(calls_model(frame) for frame in below)


def _is_of(frame: StackFrame, file: str, layer: str) -> bool:
    return file in frame["file"] and frame["function"].startswith(layer)


def _form_of(frame: StackFrame) -> ComposedForm | None:
    """The slow form that a frame of a library is."""
    if called(frame) == _RENORM and frame["file"].endswith(_FUNCTIONAL):
        return "norm limited in each lookup"
    if frame["file"].endswith(_ACTIVATIONS) and frame["function"].startswith(_NEW_GELU):
        return "gelu_new"
    return "multivariate normal" if frame["file"].endswith(_MULTIVARIATE) else None
